# Pictures in notebooks at twice the resolution: IPYTHONDIR=$PWD/.ipython jupyter lab
c = get_config()  # noqa: F821
c.InlineBackend.figure_formats = {"retina"}
