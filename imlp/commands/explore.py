"""`explore`: the teaching page, as a file and on a local server."""

import signal
import sys
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from imlp.commands.console import Force, check_suffix
from imlp.commands.console import out as console
from imlp.errors import RunError
from imlp.files import check_new, write_whole
from imlp.look.explore import page

HOST = "127.0.0.1"


def explore(
    out: Annotated[Path, typer.Option(help="The page: a single self-contained .html file.")] = Path("explore.html"),
    serve: Annotated[bool, typer.Option("--serve", help="Also serve the page on this machine until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(help="The port to serve on; 0 takes any free one.", min=0, max=65535)] = 8321,
    force: Force = False,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
) -> None:
    """Write a page where you can point at every entry of a layer's matrix.

    Choose a layer and its geometry, see the input, the matrix and the output side by side, step through the formula of
    an entry, drag alpha and watch a plain layer turn into the structured one.

    - `explore`: writes explore.html, which opens from disk
    - `explore --serve`: for a machine without a screen, behind `ssh -L 8321:127.0.0.1:8321`
    """
    check_suffix(out, ".html", ".htm")
    check_new(out, force=force)
    text = page().encode()
    with write_whole(out) as file:
        file.write(text)
    console.print(f"written: {out} (open it in a browser)", soft_wrap=True)
    if not serve:
        if open_page:
            webbrowser.open(out.resolve().as_uri())
        return
    with _server(text, port) as server:
        address = f"http://{HOST}:{server.server_address[1]}/"
        try:
            for number in (signal.SIGINT, signal.SIGTERM):  # even if a shell has put it into the background
                signal.signal(number, signal.default_int_handler)
            console.print(f"serving: {address} (stop with Ctrl-C)", soft_wrap=True)
            if open_page:
                webbrowser.open(address)
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("stopped")


def _server(text: bytes, port: int) -> ThreadingHTTPServer:
    """A server of this one page, on the loopback interface only."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(text)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: the user only needs to see the address."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Print nothing if a client has hung up, as browsers do; report any other error in one line."""
            error = sys.exc_info()[1]
            if not isinstance(error, ConnectionError | TimeoutError):
                print(f"warning: a request failed: {type(error).__name__}: {error}", file=sys.stderr)

    try:
        return Server((HOST, port), Handler)
    except OSError as error:
        remedy = "choose another one with --port, or --port 0 for any free one"
        raise RunError(f"cannot serve on port {port}: {error.strerror or error}", remedy) from error
