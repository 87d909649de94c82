"""``ferroket doctor``: what a run in this place would meet, what is wrong with it, and the mend.

Facts are collected on each rank (``facts``, ``limits``), then a worker process on each rank does what a script would
do (``trial``, ``worker``, ``psum``), so that the doctor survives what would end a script. From all of it follow the
problems (``examination``, ``diagnosis``, ``performance``), and all of it is shown (``present``).
"""
