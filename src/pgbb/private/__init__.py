"""The only package that reads records. Its one public module is `pgbb.private.door`: start there.

Other rooms import the door alone, which an import contract in pyproject.toml enforces. Behind it: cells become encoded
rows (`records`, `arrays`, `loading`, `partition`), rows are clipped (`clipping`) and added up as whole numbers
(`sums`, `session` with `draws`, `loop` and `gradients`, `moments`, `refits`), and noise is added (`noise`).
"""
