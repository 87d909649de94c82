"""What several tests share: one module for one thing, as its first line says.

Pytest finds it by `pythonpath` in pyproject.toml; a process that a test starts, by `path_to` in `mpi.py`.
"""
