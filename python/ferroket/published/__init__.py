"""Results of the literature, reproduced: what ``ferroket reproduce NAME`` runs.

:mod:`~ferroket.published.results` says what was published; the scripts in ``examples/published`` find it again, each
with a :class:`~ferroket.published.run.Run`; :mod:`~ferroket.published.page` makes tables and a picture of their logs.
"""
