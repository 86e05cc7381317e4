"""Published results on the standard splits of the UCI benchmark, for one hidden layer of 50 units."""

__all__ = ["PUBLISHED"]

type Row = tuple[float | None, float]

PUBLISHED: dict[str, dict[str, Row]] = {
    "least squares": {"concrete": (10.314, -3.755), "energy": (3.056, -2.543), "yacht": (8.970, -3.626)},
    "MC dropout, 2016": {"concrete": (5.23, -3.04), "energy": (1.66, -1.99), "yacht": (1.11, -1.55)},
    "MC dropout, 2018": {"concrete": (4.83, -2.937), "energy": (0.539, -1.212), "yacht": (0.666, -1.250)},
    "deep ensemble, 2017": {"concrete": (None, -3.06), "energy": (None, -1.38), "yacht": (None, -1.18)},
    "MFVI, 2020": {"concrete": (None, -3.190), "energy": (None, -1.961), "yacht": (None, -2.238)},
    "dropout, 2020": {"concrete": (None, -3.051), "energy": (None, -0.975), "yacht": (None, -1.330)},
    "ensemble, 2020": {"concrete": (None, -2.886), "energy": (None, -1.298), "yacht": (None, -2.441)},
}
"""RMSE, where one was published, and mean log density in original units: a linear regression on all splits of the benchmark; Gal
and Ghahramani (2016); Mukhoti, Stenetorp and Gal (2018); Lakshminarayanan, Pritzel and Blundell (2017); Antoran, Allingham and
Hernandez-Lobato (2020)."""
