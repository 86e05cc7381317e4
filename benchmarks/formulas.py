"""Ten textbook analyses by formula, next to R: lme4, survival, MASS and lm.

Each is fitted by NUTS with the default priors. R's estimates are maximum likelihood (REML for linear mixed models), so they
differ by a fraction of a posterior standard deviation, mostly in the scales of groups, whose likelihood is skewed.

    python benchmarks/formulas.py --bike hour.csv --out benchmarks/results/formulas.json

needs Rscript with lme4, MASS, rstanarm and survival, and the package palmerpenguins.
"""

import argparse
import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import bnnzoo as bz

LME4 = "suppressMessages(library(lme4)); "
SDS = "sds <- as.data.frame(VarCorr(fit)); "


@dataclass(frozen=True)
class Analysis:
    """A data set, a formula, and R's fit: code that sets ``d``, and code that returns named estimates from ``d``."""

    name: str
    formula: str
    likelihood: str
    data: str
    fit: str


LINEAR = "c(coef(fit), sigma(fit))"
ANALYSES = (
    Analysis(
        "sleepstudy",
        "Reaction ~ Days + (Days | Subject)",
        "gaussian",
        LME4 + "d <- sleepstudy",
        "fit <- lmer(Reaction ~ Days + (Days | Subject), d); "
        + SDS
        + "e <- c(fixef(fit), sds$sdcor[1:2], sigma(fit)); "
        "names(e) <- c('Intercept', 'b_Days', 'sd_Subject[Intercept]', 'sd_Subject[Days]', 'sigma')",
    ),
    Analysis(
        "penguins",
        "body_mass_g ~ flipper_length_mm + species",
        "gaussian",
        "penguins",
        f"fit <- lm(body_mass_g ~ flipper_length_mm + species, d); e <- {LINEAR}; "
        "names(e) <- c('Intercept', 'b_flipper_length_mm', 'b_species[Chinstrap]', 'b_species[Gentoo]', 'sigma')",
    ),
    Analysis(
        "epilepsy",
        "y ~ lbase * trt + lage + V4 + (1 | subject)",
        "poisson",
        "d <- MASS::epil",
        LME4
        + "fit <- glmer(y ~ lbase * trt + lage + V4 + (1 | subject), d, poisson); "
        + SDS
        + "e <- c(fixef(fit), sds$sdcor); "
        "names(e) <- c('Intercept', 'b_lbase', 'b_trt', 'b_lage', 'b_V4', 'b_lbase:trt', 'sd_subject')",
    ),
    Analysis(
        "kidney",
        "cens(time, status) ~ age + sex",
        "weibull",
        "suppressMessages(library(survival)); d <- kidney[c('time', 'status', 'age', 'sex')]",
        "fit <- survreg(Surv(time, status) ~ age + sex, d, dist='weibull'); e <- c(coef(fit), 1 / fit$scale); "
        "names(e) <- c('Intercept', 'b_age', 'b_sex', 'shape')",
    ),
    Analysis(
        "roaches",
        "y ~ roach1 + treatment + senior + offset(log(exposure2))",
        "negative_binomial",
        "data(roaches, package='rstanarm'); d <- roaches; d$roach1 <- d$roach1 / 100",
        "fit <- MASS::glm.nb(y ~ roach1 + treatment + senior + offset(log(exposure2)), d); e <- c(coef(fit), fit$theta); "
        "names(e) <- c('Intercept', 'b_roach1', 'b_treatment', 'b_senior', 'concentration')",
    ),
    Analysis(
        "polls (simulated)",
        "vote ~ female + black + (1 | state)",
        "bernoulli",
        "set.seed(1); n <- 1500; d <- data.frame(female=rbinom(n, 1, .52), black=rbinom(n, 1, .12), "
        "state=paste0('s', sprintf('%02d', sample(40, n, TRUE)))); "
        "a <- rnorm(40, 0, .5); d$vote <- rbinom(n, 1, plogis(.4 - .1 * d$female - 1.6 * d$black + a[as.integer(substr(d$state, "
        "2, 3))]))",
        LME4
        + "fit <- glmer(vote ~ female + black + (1 | state), d, binomial); "
        + SDS
        + "e <- c(fixef(fit), sds$sdcor); "
        "names(e) <- c('Intercept', 'b_female', 'b_black', 'sd_state')",
    ),
    Analysis(
        "Stroop (simulated)",
        "log(rt) ~ incongruent + (incongruent || subject)",
        "gaussian",
        "set.seed(2); d <- expand.grid(trial=1:20, incongruent=0:1, subject=paste0('p', sprintf('%02d', 1:30))); "
        "a <- rnorm(30, 0, .15); b <- rnorm(30, 0, .05); s <- as.integer(substr(d$subject, 2, 3)); "
        "d$rt <- exp(6.3 + a[s] + (.12 + b[s]) * d$incongruent + rnorm(nrow(d), 0, .2))",
        LME4
        + "fit <- lmer(log(rt) ~ incongruent + (incongruent || subject), d); "
        + SDS
        + "e <- c(fixef(fit), sds$sdcor); "
        "names(e) <- c('Intercept', 'b_incongruent', 'sd_subject[Intercept]', 'sd_subject[incongruent]', 'sigma')",
    ),
    Analysis(
        "bike counts",
        "cnt ~ temp + hum + workingday + season",
        "negative_binomial",
        "bike",
        "fit <- MASS::glm.nb(cnt ~ temp + hum + workingday + season, d); e <- c(coef(fit), fit$theta); "
        "names(e) <- c('Intercept', 'b_temp', 'b_hum', 'b_workingday', 'b_season[b]', 'b_season[c]', 'b_season[d]', "
        "'concentration')",
    ),
    Analysis(
        "dose response (ToothGrowth)",
        "len ~ supp * log(dose)",
        "gaussian",
        "d <- ToothGrowth",
        f"fit <- lm(len ~ supp * log(dose), d); e <- {LINEAR}; "
        "names(e) <- c('Intercept', 'b_supp', 'b_log(dose)', 'b_supp:log(dose)', 'sigma')",
    ),
    Analysis(
        "radon (simulated)",
        "log_radon ~ floor + (1 | county)",
        "gaussian",
        "set.seed(3); n <- 919; d <- data.frame(floor=rbinom(n, 1, .17), county=paste0('c', sprintf('%02d', "
        "sample(85, n, TRUE)))); "
        "a <- rnorm(85, 0, .33); d$log_radon <- 1.46 - .69 * d$floor + a[as.integer(substr(d$county, 2, 3))] + rnorm(n, 0, .76)",
        LME4 + "fit <- lmer(log_radon ~ floor + (1 | county), d); " + SDS + "e <- c(fixef(fit), sds$sdcor); "
        "names(e) <- c('Intercept', 'b_floor', 'sd_county', 'sigma')",
    ),
)


def frame_of(name: str, bike: Path) -> pd.DataFrame | None:
    """Return the data that do not come from R."""
    if name == "penguins":
        from palmerpenguins import load_penguins

        return load_penguins()[["body_mass_g", "flipper_length_mm", "species"]].dropna().reset_index(drop=True)
    if name == "bike":
        hours = pd.read_csv(bike)
        days = hours.groupby("dteday").agg(
            {"cnt": "sum", "temp": "mean", "hum": "mean", "workingday": "first", "season": "first"}
        )
        return days.assign(season=days.season.map(dict(zip(range(1, 5), "abcd", strict=True)))).reset_index(drop=True)
    return None


def from_r(analysis: Analysis, bike: Path) -> tuple[pd.DataFrame, dict[str, float]]:
    """Return the data and R's estimates."""
    with tempfile.TemporaryDirectory() as folder:
        data, estimates = Path(folder) / "d.csv", Path(folder) / "e.csv"
        frame = frame_of(analysis.data, bike)
        if frame is None:
            code = f"{analysis.data}; write.csv(d, '{data}', row.names=FALSE); "
        else:
            frame.to_csv(data, index=False)
            code = f"d <- read.csv('{data}', stringsAsFactors=TRUE); "
        library = "suppressMessages(library(survival)); " if analysis.name == "kidney" else ""
        code += f"{library}{analysis.fit}; "
        code += f"write.csv(data.frame(name=names(e), value=as.numeric(e)), '{estimates}', row.names=FALSE)"
        subprocess.run(["Rscript", "-e", code], check=True, capture_output=True)
        found = pd.read_csv(estimates)
        return pd.read_csv(data), dict(zip(found.name, found.value, strict=True))


def parameters(tree: object) -> dict[str, np.ndarray]:
    """Return draws ``[C, S]`` of each number in the group posterior, by its name and labels."""
    found = {}
    for name, array in tree["posterior"].data_vars.items():
        values = array.to_numpy().reshape(*array.shape[:2], -1)
        labels = [""] if array.ndim == 2 else [f"[{label}]" for label in array[array.dims[2]].to_numpy()]
        if array.ndim <= 3:
            found |= {f"{name}{label}": values[..., place] for place, label in enumerate(labels)}
    return found


def run(analysis: Analysis, bike: Path) -> dict[str, object]:
    """Fit one analysis and compare it with R's estimates."""
    import arviz as az

    frame, estimates = from_r(analysis, bike)
    start = time.perf_counter()
    posterior = bz.fit(
        bz.formula(analysis.formula, frame, analysis.likelihood), bz.NUTS(), frame, seed=0, progress=False
    )
    seconds = time.perf_counter() - start
    draws = parameters(bz.to_datatree(posterior))
    rows = {}
    for name, estimate in estimates.items():
        values = draws[name]
        rows[name] = {
            "r": estimate,
            "mean": float(values.mean()),
            "median": float(np.median(values)),
            "sd": float(values.std()),
            "mcse": float(az.mcse(values)),
            "rhat": float(az.rhat(values)),
        }
    return {
        "formula": analysis.formula,
        "likelihood": analysis.likelihood,
        "rows": len(frame),
        "seconds": seconds,
        "sites": rows,
    }


def main() -> None:
    """Run all, print a line for each, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bike", type=Path, required=True, help="hour.csv of the UCI bike sharing data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for analysis in ANALYSES:
        if arguments.only and arguments.only not in analysis.name:
            continue
        found[analysis.name] = run(analysis, arguments.bike)
        worst = max(abs(each["median"] - each["r"]) / each["sd"] for each in found[analysis.name]["sites"].values())
        print(
            f"{analysis.name}: largest difference {worst:.2f} posterior sd, {found[analysis.name]['seconds']:.0f} s",
            flush=True,
        )
        arguments.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
