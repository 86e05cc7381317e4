"""The text of a formula, in its parts."""

import pytest

from bnnzoo.models.formula.parsing import FormulaError, parse, split_outside


def test_terms_are_told_apart() -> None:
    found = parse("y ~ a*b - 1 + s(log(dose), k=8) + (1 + x || g/h) + offset(log(t)) + nn(a, `b c`, hidden=(5, 5))")
    assert found.linear == "a*b - 1"
    assert [call.name for call in found.calls] == ["s", "offset", "nn"]
    assert found.calls[0].variables == ("log(dose)",) and found.calls[0].settings == {"k": 8}
    assert found.calls[2].variables == ("a", "`b c`") and found.calls[2].settings == {"hidden": (5, 5)}
    (group,) = found.groups
    assert (group.inner, group.group, group.correlated) == ("1 + x", "g/h", False)


def test_outcomes_have_weights_and_censoring() -> None:
    assert parse("cens(t, e) ~ 1").additions == {"event": "e"} and parse("cens(t, e) ~ 1").outcome == "t"
    assert parse("y | weights(w) ~ 1").additions == {"weights": "w"}
    assert parse("log(y) ~ x").outcome == "log(y)"


def test_separators_within_brackets_and_quotes_are_left() -> None:
    assert split_outside("f(a, b), 'c, d', `e, f`", ",") == ["f(a, b)", " 'c, d'", " `e, f`"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("y", "must have an outcome and terms: write 'y ~ x1 \\+ x2'"),
        ("y ~ x ~ z", "must have an outcome and terms"),
        ("y ~ s(x", "ends within brackets"),
        ("y ~ (1 | g))", "brackets of .* do not match"),
        ("y ~ s(x):z", "s\\(...\\) stands within 's\\(x\\):z'"),
        ("y ~ x | g", "write a group in brackets, \\(x \\| g\\)"),
        ("y ~ (1 | )", "has no group: write \\(1 \\| group\\)"),
        ("y ~ (1 | a | b)", "has several bars"),
        ("y ~ x - s(z)", "takes s\\(z\\) away: leave the term out"),
        ("y ~ x + + z", "a '\\+' with nothing beside it"),
        ("y ~ s(x, k=a)", "'a' in 's\\(x, k=a\\)' is no number"),
        ("y | trials(n) ~ x", "'trials\\(n\\)' on the left side of .* is not known"),
        ("cens(t) ~ x", "needs a time and a column of events: cens\\(time, event\\)"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(FormulaError, match=sentence):
        parse(text)
