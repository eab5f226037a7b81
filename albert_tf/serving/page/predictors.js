"use strict";
// Answers to items, as the predictors in albert_tf/tasks give them: text -> sequences of tokens -> model -> answer.
//
// `model` is what `offline.model_data` writes: the kind of predictor, labels, and the settings of the task. `compute`
// runs one of the model's files on features {input_ids, attention_mask, token_type_ids}, rows of numbers of one length,
// and promises its outputs {name: {data, dims}}.

const MASK = "[MASK]";
const CANDIDATES = 5;  // shown for each mask
const THRESHOLD = 0.5;  // the least probability of one of several labels that is given
const TOKENS_OF_BATCH = 512;
const OUTSIDE = "O";

const softmax = values => {
  const most = Math.max(...values), weights = values.map(value => Math.exp(value - most));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map(weight => weight / total);
};
const sigmoid = value => 1 / (1 + Math.exp(-value));
const indexOfMost = values => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
const namedValues = (names, values) => Object.fromEntries(names.map((name, i) => [name, values[i]]));
// The indices of values, the largest first; of equal values, the first one.
const descending = values => values.map((_, i) => i).sort((a, b) => values[b] - values[a] || a - b);

class Predictor {
  constructor(model, tokenizer, compute) {
    this.model = model;
    this.settings = model.settings;
    this.tokenizer = tokenizer;
    this.compute = compute;
  }

  // [CLS] first [SEP], or [CLS] first [SEP] second [SEP], as {ids, segments}.
  sequence(first, second = null) {
    const { cls, sep } = this.tokenizer.ids, segment = Number(this.tokenizer.rules.numbers_segments);
    const ids = [cls, ...first, sep, ...(second ? [...second, sep] : [])];
    const start = first.length + 2;
    return { ids, segments: ids.map((_, i) => (i < start ? 0 : segment)) };
  }

  // A sequence of one text or two that fits; the longer text loses tokens first.
  pair(textA, textB = "") {
    const { tokenizer } = this, limit = this.settings.max_seq_length;
    const a = tokenizer.encode(textA), b = textB ? tokenizer.encode(textB) : [];
    if (!b.length) return this.sequence(tokenizer.cut(a, limit - 2));
    const room = limit - 3;
    // Of an odd number of places, the first text gets one more; with the rules of transformers, the longer one does.
    const isShorter = tokenizer.rules.finds_special_tokens && a.length <= b.length;
    const halfA = Math.floor((room + (isShorter ? 0 : 1)) / 2);
    const keptA = Math.min(a.length, Math.max(room - b.length, halfA));
    const keptB = Math.min(b.length, room - keptA);
    return this.sequence(tokenizer.cut(a, keptA), keptB ? tokenizer.cut(b, keptB) : null);
  }

  // For each sequence its outputs {name: {values, dims}}, the longest sequences first computed. Between batches, the
  // page gets a turn, and `onProgress` the number of sequences so far.
  async outputs(sequences, file = "model", onProgress = () => {}) {
    const lengths = sequences.map(({ ids }) => ids.length);
    const waiting = descending(lengths), results = new Array(sequences.length);
    let done = 0;
    while (waiting.length) {
      const length = lengths[waiting[0]];
      const batch = waiting.splice(0, Math.max(1, Math.floor(TOKENS_OF_BATCH / length)));
      const outputs = await this.compute(file, this.#padded(batch.map(i => sequences[i]), length));
      batch.forEach((index, row) => { results[index] = rowOf(outputs, row); });
      done += batch.length;
      await onProgress(done);
    }
    return results;
  }

  #padded(sequences, length) {
    const rows = (name, fill) => sequences.map(sequence => {
      const values = name === "mask" ? sequence.ids.map(() => 1) : sequence[name];
      return [...values, ...new Array(length - values.length).fill(fill)];
    });
    const features = {
      input_ids: rows("ids", 0), attention_mask: rows("mask", 0), token_type_ids: rows("segments", 0),
    };
    if (sequences[0].pMask) features.p_mask = rows("pMask", 1);
    return features;
  }
}

// One row of outputs [B, ...]: {name: {values, dims}}, without the first dimension.
function rowOf(outputs, row) {
  return Object.fromEntries(Object.entries(outputs).map(([name, { data, dims }]) => {
    const size = dims.slice(1).reduce((product, dim) => product * dim, 1);
    return [name, { values: Array.from(data.slice(row * size, (row + 1) * size), Number), dims: dims.slice(1) }];
  }));
}

// Rows of values [rows, columns].
const rowsOf = ({ values, dims }) =>
  Array.from({ length: dims[0] }, (_, i) => values.slice(i * dims[1], (i + 1) * dims[1]));

// [{start, length, isMax}]: windows of at most `room` tokens; `isMax` says for each token whether it has more context
// here than in other windows.
function windowsOver(numTokens, room, stride) {
  const step = Math.min(room, stride), windows = [];
  const best = new Array(numTokens).fill(-Infinity), owners = new Array(numTokens).fill(0);
  for (let start = 0; start < Math.max(0, numTokens - room) + step; start += step) {
    const length = Math.min(room, numTokens - start);
    for (let i = 0; i < length; i++) {
      const score = Math.min(i, length - 1 - i) + 0.01 * length;
      if (score > best[start + i]) { best[start + i] = score; owners[start + i] = windows.length; }
    }
    windows.push({ start, length });
  }
  return windows.map(({ start, length }, number) => (
    { start, length, isMax: owners.slice(start, start + length).map(owner => owner === number) }));
}

// --- Labels and scores ---

class ClassificationPredictor extends Predictor {
  async answer(item) {
    const [first, second] = this.textsOf(item);
    const sequences = this.settings.windows ? this.#windowsOf(first) : [this.pair(first, second)];
    const rows = (await this.outputs(sequences)).map(({ logits }) => this.#valuesOf(logits.values));
    const values = rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
    const { labels, is_multi_label: isMultiLabel } = this.model;
    if (isMultiLabel) {
      const reached = labels.filter((_, i) => values[i] >= THRESHOLD);
      return { labels: reached, probabilities: namedValues(labels, values) };
    }
    if (labels.length === 1) return { [labels[0] === "LABEL_0" ? "score" : labels[0]]: values[0] };
    return bestLabel("label", labels, values);
  }

  #valuesOf(logits) {
    if (this.model.is_multi_label) return logits.map(sigmoid);
    if (this.model.labels.length > 1) return softmax(logits);
    return this.model.score_is_probability ? logits.map(sigmoid) : logits;
  }

  #windowsOf(text) {
    const ids = this.tokenizer.encode(text), room = this.settings.max_seq_length - 2;
    return windowsOver(ids.length, room, Math.max(1, Math.floor(room / 2))).map(
      ({ start, length }) => this.sequence(ids.slice(start, start + length)));
  }

  // A text or two, as the page asks for them.
  textsOf(item) {
    const names = Object.keys(item);
    return typeof item === "string" ? [item, ""] : [item[names[0]], item[names[1]] ?? ""];
  }
}

function bestLabel(key, labels, probabilities) {
  const best = indexOfMost(probabilities);
  return { [key]: labels[best], probability: probabilities[best], probabilities: namedValues(labels, probabilities) };
}

// --- Vectors ---

class EmbeddingPredictor extends Predictor {
  async answer(item) { return { embedding: (await this.embed([item]))[0] }; }

  async embed(texts, onProgress) {
    const outputs = await this.outputs(texts.map(text => this.pair(text)), "model", onProgress);
    return outputs.map(({ embedding }) => embedding.values);
  }
}

class PretrainedPredictor extends Predictor {
  async answer(item) {
    if (typeof item !== "string") return this.#order(item);
    if (item.includes(MASK)) return this.#fill(item);
    return { embedding: (await this.embed([item]))[0] };
  }

  // The mean of the tokens' last hidden states.
  async embed(texts, onProgress) {
    const sequences = texts.map(text => this.pair(text));
    const outputs = await this.outputs(sequences, "model", onProgress);
    return outputs.map(({ last_hidden_state: hidden }, i) => {
      const rows = rowsOf(hidden).slice(0, sequences[i].ids.length);
      return rows[0].map((_, column) => rows.reduce((sum, row) => sum + row[column], 0) / rows.length);
    });
  }

  async #order({ text_a: first, text_b: second }) {
    const [{ sop_logits: logits }] = await this.outputs([this.pair(first, second)]);
    if (!logits) throw new Error("This model cannot order two texts.");
    return { [this.model.sentence_task === "nsp" ? "is_next" : "in_order"]: softmax(logits.values)[0] };
  }

  async #fill(text) {
    if (!this.model.fills_masks) throw new Error(`This model cannot fill ${MASK}.`);
    const { tokenizer } = this, maskId = tokenizer.ids.mask, limit = this.settings.max_seq_length;
    const ids = this.#encodeMasked(text), kept = tokenizer.cut(ids, limit - 2);
    const numMasks = list => list.filter(id => id === maskId).length;
    if (numMasks(ids) > numMasks(kept)) throw new Error(`A ${MASK} is not among the ${limit} tokens that the model reads.`);
    const sequence = this.sequence(kept);
    const [{ logits }] = await this.outputs([sequence], "masked_lm");
    const rows = rowsOf(logits), masks = [];
    sequence.ids.forEach((id, place) => {
      if (id !== maskId) return;
      const probabilities = softmax(rows[place]);
      const best = descending(rows[place]).slice(0, CANDIDATES);
      masks.push(best.map(token => ({ token: tokenizer.tokens[token], probability: probabilities[token] })));
    });
    return { masks };
  }

  // The parts between masks are tokenized by themselves; one that follows a mask without a space continues its word.
  #encodeMasked(text) {
    const { tokenizer } = this, [first, ...others] = text.split(MASK), ids = tokenizer.encode(first);
    for (const part of others) {
      const encoded = tokenizer.encode(part);
      const beginsWithSpace = part !== "" && tokenizer.tables.is(part.codePointAt(0), IN.space);
      if (encoded.length && !beginsWithSpace) {
        const within = tokenizer.idWithinWord(encoded[0]);
        encoded.splice(0, 1, ...(within >= 0 ? [within] : []));
      }
      ids.push(tokenizer.ids.mask, ...encoded);
    }
    return ids;
  }
}

// --- Entities ---

class TaggingPredictor extends Predictor {
  async answer(text) {
    const codes = codesOf(text), words = this.splitWords(codes);
    const separator = this.settings.word_separator === "space" ? [BLANK] : [];
    const joined = words.flatMap(([start, end]) => [...codes.slice(start, end), ...separator]);
    if (separator.length) joined.pop();  // none after the last word
    const { tags, probabilities } = await this.#tagsOf(joined, words, separator.length);
    return { entities: this.#entities(codes, words, tags, probabilities) };
  }

  // The range of each word: an ideograph, a run of characters up to white space, or punctuation at an end of a run.
  splitWords(codes) {
    const { tables } = this.tokenizer, words = [];
    const isIn = set => place => place < codes.length && tables.is(codes[place], set);
    const isPunctuation = isIn(IN.wordPunctuation), isIdeograph = isIn(IN.ideograph);
    const isOther = place => place < codes.length && !tables.is(codes[place], IN.space | IN.wordPunctuation | IN.ideograph);
    const after = (place, belongs) => { while (belongs(place)) place++; return place; };
    for (let start = 0; start < codes.length;) {
      let end = start;
      if (isIdeograph(start)) end = start + 1;
      else if (isOther(start)) {
        end = after(start, isOther);
        for (let next = after(end, isPunctuation); isOther(next); next = after(end, isPunctuation)) end = after(next, isOther);
      } else if (isPunctuation(start)) end = after(start, isPunctuation);
      if (end > start) words.push([start, end]);
      start = Math.max(end, start + 1);
    }
    return visibleParts(tables, codes, words).filter(([start, end]) => start < end);
  }

  // The label of each word and its probability. A word has the label of its first token.
  async #tagsOf(joined, words, gap) {
    const { tokenizer, settings, model } = this;
    const starts = [];
    words.reduce((place, [start, end]) => { starts.push(place); return place + end - start + gap; }, 0);
    const { ids, spans } = tokenizer.encodeWithOffsets(textOf(joined));
    const numbers = wordNumbers(starts, visibleParts(tokenizer.tables, joined, spans));
    const windows = windowsOver(ids.length, settings.max_seq_length - 2, settings.doc_stride);
    const outputs = await this.outputs(windows.map(({ start, length }) => this.sequence(ids.slice(start, start + length))));
    const best = new Array(words.length).fill(-1), certainty = new Array(words.length).fill(0);
    windows.forEach(({ start, isMax }, window) => {
      const rows = rowsOf(outputs[window].logits);
      isMax.forEach((isHere, i) => {
        const word = numbers[start + i] - 1;
        if (!isHere || word < 0) return;
        const probabilities = softmax(rows[i + 1]);  // after that of [CLS]
        best[word] = indexOfMost(probabilities);
        certainty[word] = probabilities[best[word]];
      });
    });

    // A word without a token continues the tag of the last word before it that has one.
    const outside = Math.max(0, model.labels.indexOf(OUTSIDE));
    let last = -1;
    best.forEach((label, word) => {
      if (label >= 0) {
        last = word;
        return;
      }
      best[word] = last >= 0 ? this.#continuation(best[last]) : outside;
      certainty[word] = last >= 0 ? certainty[last] : 0;
    });
    return { tags: best.map(label => model.labels[label]), probabilities: certainty };
  }

  #continuation(label) {
    const { labels } = this.model, inside = labels.indexOf(`I-${letterAndType(labels[label])[1]}`);
    return inside < 0 ? label : inside;
  }

  #entities(codes, words, tags, probabilities) {
    const named = this.settings.tag_scheme === "words" ? tags.map(tag => `B-${tag}`) : tags;
    const found = entitiesOf(named);
    const ranges = found.map(({ first, last }) => [words[first][0], words[last][1]]);
    return visibleParts(this.tokenizer.tables, codes, ranges).map((part, i) => {
      const [start, end] = part[0] < part[1] ? part : ranges[i];
      const { type, first, last } = found[i], here = probabilities.slice(first, last + 1);
      const probability = here.reduce((sum, value) => sum + value, 0) / here.length;
      return { label: type, text: textOf(codes.slice(start, end)), start, end, probability };
    });
  }
}

// For each token 1 + the index of the word that it represents, or 0: the first token that begins in the word.
function wordNumbers(starts, spans) {
  const represented = new Set();
  return spans.map(([start, end]) => {
    if (end <= start) return 0;
    let number = 0;
    while (number < starts.length && starts[number] <= start) number++;
    if (represented.has(number)) return 0;
    represented.add(number);
    return number;
  });
}

function letterAndType(label) {
  if (label === OUTSIDE) return [OUTSIDE, ""];
  const match = /^([BIESLUM])-(.+)$/su.exec(label);
  if (!match) return ["I", label];
  return [{ L: "E", U: "S", M: "I" }[match[1]] ?? match[1], match[2]];
}

// Type, first and last word of each entity by the rule of conlleval.
function entitiesOf(tags) {
  const found = [];
  let [lastLetter, lastType] = [OUTSIDE, ""], first = 0;
  [...tags, OUTSIDE].forEach((tag, word) => {
    const [letter, type] = letterAndType(tag);
    const isNew = ["B", "S"].includes(letter) || ["E", "S"].includes(lastLetter) || type !== lastType;
    const ends = lastLetter !== OUTSIDE && (letter === OUTSIDE || isNew);
    if (ends) found.push({ type: lastType, first, last: word - 1 });
    if (letter !== OUTSIDE && (lastLetter === OUTSIDE || isNew)) first = word;
    [lastLetter, lastType] = [letter, type];
  });
  return found;
}

// --- Questions ---

class SpanPredictor extends Predictor {
  async answer({ question, context }) {
    const { tokenizer, settings } = this, codes = codesOf(context);
    const query = tokenizer.encode(question).slice(0, settings.max_query_length);
    const { ids, spans } = tokenizer.encodeWithOffsets(context);
    const room = settings.max_seq_length - query.length - 3, shift = query.length + 2;
    const windows = windowsOver(ids.length, room, settings.doc_stride);
    const sequences = windows.map(({ start, length }) => {
      const sequence = this.#sequence(query, ids.slice(start, start + length));
      return this.model.has_null ? { ...sequence, pMask: sequence.ids.map((_, i) => this.#isForbidden(i, shift, length)) } : sequence;
    });
    const outputs = await this.outputs(sequences);
    const candidates = windows.flatMap((window, i) => this.#candidates(window, shift, spans, outputs[i]));
    candidates.sort((a, b) => b.score - a.score);
    const answer = this.#best(codes, candidates);
    if (!this.model.has_null) return answer;
    const nullOdds = Math.min(...outputs.map(({ cls_logits: logits }) => logits.values[0]));
    if (!(nullOdds > settings.null_threshold)) return { ...answer, null_odds: nullOdds };
    return { answer: "", probability: sigmoid(nullOdds), start: 0, end: 0, null_odds: nullOdds };
  }

  // Also a window without tokens has a second [SEP].
  #sequence(query, tokens) {
    const { cls, sep } = this.tokenizer.ids, segment = Number(this.tokenizer.rules.numbers_segments);
    const ids = [cls, ...query, sep, ...tokens, sep];
    return { ids, segments: ids.map((_, i) => (i < query.length + 2 ? 0 : segment)) };
  }

  // Answers begin and end in the context or, to say that there is none, at [CLS].
  #isForbidden(place, shift, length) { return Number(place > 0 && (place < shift || place >= shift + length)); }

  // [{start, end, score}]: answers that begin in a window where their first token has the most context.
  #candidates({ start: first, length, isMax }, shift, spans, outputs) {
    const size = shift + length + 1, found = [];
    const isContext = place => place >= shift && place < shift + length;
    const spanAt = place => spans[first + place - shift];
    // A token without text ends where the last token with text before it ends.
    const ends = new Array(size).fill(-1);
    for (let place = 1; place < size; place++) {
      ends[place] = ends[place - 1];
      if (isContext(place) && spanAt(place)[1] > spanAt(place)[0]) ends[place] = Math.max(ends[place], spanAt(place)[1]);
    }
    for (const [start, end, score] of this.#pairs(outputs, size)) {
      const isValid = isContext(start) && isContext(end) && isMax[start - shift]
        && end >= start && end < start + this.settings.max_answer_length;
      if (isValid && ends[end] > spanAt(start)[0]) found.push({ start: spanAt(start)[0], end: ends[end], score });
    }
    return found;
  }

  // The model's best starts and ends, [start, end, score] each.
  #pairs(outputs, size) {
    const number = this.settings.n_best_size;
    if (!this.model.has_null) {
      const [starts, ends] = ["start_logits", "end_logits"].map(name => outputs[name].values.slice(0, size));
      const bestEnds = descending(ends).slice(0, number);
      return descending(starts).slice(0, number).flatMap(
        start => bestEnds.map(end => [start, end, starts[start] + ends[end]]));
    }
    const { start_top_log_probs: startScores, start_top_index: starts, end_top_log_probs: endScores, end_top_index: ends } = outputs;
    const numEnds = ends.values.length / starts.values.length;
    return starts.values.flatMap((start, i) => Array.from({ length: numEnds }, (_, j) => {
      const place = i * numEnds + j;
      return [start, ends.values[place], startScores.values[i] + endScores.values[place]];
    }));
  }

  // The best of the candidates, and its share among the best ones with different texts.
  #best(codes, candidates) {
    const texts = new Map();
    const parts = visibleParts(this.tokenizer.tables, codes, candidates.map(({ start, end }) => [start, end]));
    for (const [i, [start, end]] of parts.entries()) {
      if (start === end) continue;
      const text = textOf(codes.slice(start, end));
      if (!texts.has(text)) texts.set(text, { start, end, score: candidates[i].score });
      if (texts.size === this.settings.n_best_size) break;
    }
    if (!texts.size) return { answer: "", probability: 0, start: 0, end: 0 };
    const [[answer, { start, end }]] = texts;
    const [probability] = softmax([...texts.values()].map(({ score }) => score));
    return { answer, probability, start, end };
  }
}

class ChoicePredictor extends Predictor {
  async answer({ article, question, options }) {
    const { tokenizer, settings } = this, room = settings.max_seq_length - 3;
    const articleIds = tokenizer.encode(article), clean = text => tokenizer.clean(text);
    const cleanedQuestion = clean(question);
    const sequences = options.map(option => {
      // An option fills the gap of a question, or follows it.
      const text = cleanedQuestion.includes("_")
        ? cleanedQuestion.replace(/_+/g, () => clean(option)) : `${cleanedQuestion} ${clean(option)}`;
      const ending = tokenizer.encode(text).slice(-Math.min(settings.max_qa_length, room));
      return this.#sequence(articleIds.slice(0, room - ending.length), ending);
    });
    const length = Math.max(...sequences.map(({ ids }) => ids.length));
    const padded = name => [sequences.map(sequence => {
      const values = name === "mask" ? sequence.ids.map(() => 1) : sequence[name];
      return [...values, ...new Array(length - values.length).fill(0)];
    })];
    const features = { input_ids: padded("ids"), attention_mask: padded("mask"), token_type_ids: padded("segments") };
    const { logits } = rowOf(await this.compute("model", features), 0);
    const letters = options.map((_, i) => String.fromCharCode(65 + i));
    const answer = bestLabel("answer", letters, softmax(logits.values));
    return { ...answer, option: options[letters.indexOf(answer.answer)] };
  }

  // Also an ending without tokens has a second [SEP].
  #sequence(first, second) {
    const { cls, sep } = this.tokenizer.ids, segment = Number(this.tokenizer.rules.numbers_segments);
    const ids = [cls, ...first, sep, ...second, sep];
    return { ids, segments: ids.map((_, i) => (i < first.length + 2 ? 0 : segment)) };
  }
}

const PREDICTORS = {
  ClassificationPredictor, EmbeddingPredictor, PretrainedPredictor, TaggingPredictor, SpanPredictor,
  SpanOrNonePredictor: SpanPredictor, ChoicePredictor,
};

const makePredictor = (model, tokenizer, compute) => new PREDICTORS[model.kind](model, tokenizer, compute);
