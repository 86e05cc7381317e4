"""Methods of other libraries on cards of the zoo, by their own code, each script in an environment of its own.

Run, after ``bnnzoo zoo export references``::

    python benchmarks/peers/numpyro_methods.py references peers     (numpyro, blackjax, xarray and h5netcdf; no bnnzoo)
    python -m benchmarks.peers.enter peers zoo_table.json           (enters the trees into a table of the zoo)
"""
