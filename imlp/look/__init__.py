"""To see a matrix and to trust it: explanations, pictures, the page for exploring, and the comparison of backends."""
