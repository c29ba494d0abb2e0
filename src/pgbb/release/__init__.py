"""What is published: the file, its certificate, its payload and the posterior drawn from it. Needs no JAX."""

from pgbb.release.file import Release, load
from pgbb.release.signing import generate_key

__all__ = ["Release", "generate_key", "load"]
