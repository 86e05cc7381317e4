// Pages of the guide come before the reference, the gallery and the zoo, which hold the same words many times.
var Scorer = {
  score: (result) => {
    const [docname, , , , score] = result;
    if (/^(changelog|benchmarks|contributing|architecture|conformance|adding_a_method|adding_a_sampler)$/.test(docname)) return score - 12;
    if (/^(gallery|zoo)\//.test(docname)) return score - 10;
    if (/^api\//.test(docname)) return score - 6;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
