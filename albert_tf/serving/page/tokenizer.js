"use strict";
// Text -> token ids, with the same ids and offsets as albert_tf/text/tokenizer and albert_tf/text/wordpiece.py.
//
// Texts are arrays of code points, because Python counts characters so; JavaScript's strings count units of UTF-16.
// What a character is (a space, an accent, its lower case) comes from tables that the exporter makes
// (tokenizer_data.py), because browsers have other versions of Unicode.

// Sets of characters: bits of `CharacterTables.bits`, in the order of `tokenizer_data.SETS`.
const SETS = ["space", "removed", "blank", "ideograph", "punctuation", "accent", "cased", "caseIgnorable", "invisible",
  "selector", "mark", "twoCases", "wordPunctuation", "digit"];
const IN = Object.fromEntries(SETS.map((name, bit) => [name, 1 << bit]));

const MARKER = "▁";  // SentencePiece writes it for the space before a word
const CONTINUES_WORD = "##";  // begins a WordPiece token that continues a word
const BLANK = 0x20, CAPITAL_SIGMA = 0x3a3, SMALL_SIGMA = 0x3c3, FINAL_SIGMA = 0x3c2, REPLACEMENT = 0xfffd;

const codesOf = text => Array.from(text, char => char.codePointAt(0));

function textOf(codes) {
  let text = "";
  for (const code of codes) text += String.fromCodePoint(code);
  return text;
}

// What Python's library knows about characters.
class CharacterTables {
  constructor({ sets, lower, decompositions, combining }) {
    this.bits = new Uint16Array(0x110000);
    sets.forEach((gaps, bit) => {
      // [gap, length, gap, length, ...]: the characters outside and inside, one after the other.
      let code = 0;
      for (let i = 0; i < gaps.length; i += 2) {
        code += gaps[i];
        for (const end = code + gaps[i + 1]; code < end; code++) this.bits[code] |= 1 << bit;
      }
    });
    const table = pairs => new Map(Object.entries(pairs).map(([char, text]) => [char.codePointAt(0), codesOf(text)]));
    this.lowerOf = table(lower);
    this.partsOf = table(decompositions);
    this.combining = new Map(combining);  // a mark -> its combining class
  }

  is(code, set) { return (this.bits[code] & set) !== 0; }

  // Lower case, with the sigma at the end of a word as `str.lower` writes it; `emit` gets each code and its place.
  lower(codes, emit) {
    codes.forEach((code, place) => {
      if (code === CAPITAL_SIGMA) emit(this.#endsWord(codes, place) ? FINAL_SIGMA : SMALL_SIGMA, place);
      else if (this.lowerOf.has(code)) this.lowerOf.get(code).forEach(part => emit(part, place));
      else emit(code, place);
    });
  }

  #endsWord(codes, place) {
    let before = place - 1, after = place + 1;
    while (before >= 0 && this.is(codes[before], IN.caseIgnorable)) before--;
    while (after < codes.length && this.is(codes[after], IN.caseIgnorable)) after++;
    const follows = before >= 0 && this.is(codes[before], IN.cased);
    return follows && !(after < codes.length && this.is(codes[after], IN.cased));
  }

  // The decomposition of a character, canonical or of compatibility as the tables have it.
  decomposed(code) {
    const index = code - 0xac00;
    if (index < 0 || index >= 11172) return this.partsOf.get(code) ?? [code];
    // A Korean syllable: 28 final consonants, one of which is none, after each of 21 vowels.
    const parts = [0x1100 + Math.floor(index / 588), 0x1161 + Math.floor((index % 588) / 28)];
    if (index % 28) parts.push(0x11a7 + (index % 28));
    return parts;
  }

  // Sorts each run of combining marks, with their places, by their classes, as decomposed text is written.
  order(codes, places) {
    for (let i = 1; i < codes.length; i++) {
      const rank = this.combining.get(codes[i]) ?? 0;
      for (let j = i; rank && j > 0 && (this.combining.get(codes[j - 1]) ?? 0) > rank; j--) {
        [codes[j - 1], codes[j]] = [codes[j], codes[j - 1]];
        [places[j - 1], places[j]] = [places[j], places[j - 1]];
      }
    }
  }
}

// For each source position with a part in the result, where it ends: what was removed belongs to the part before it.
function endsOf(places, length) {
  const ends = new Map();
  places.forEach((place, i) => {
    if (i && places[i - 1] !== place) ends.set(places[i - 1], place);
  });
  if (places.length) ends.set(places.at(-1), length);
  return ends;
}

class Tokenizer {
  constructor(data) {
    this.tables = new CharacterTables(data.characters);
    this.rules = data.rules;
    this.cleaning = data.cleaning;
    this.ids = data.ids;  // of the special tokens: pad, unk, cls, sep, mask
    this.spaceId = data.space_id;
    this.added = data.added;  // for each token the characters that each place of it may have, the longest first
    this.addedIds = new Map(Object.entries(data.added_ids));
    this.idsAfterSpace = new Set(data.ids_after_space);
  }

  encode(text) { return this.#parts(codesOf(text)).ids; }

  // {ids, spans}: for each id the [start, end) of its characters, without invisible ones at the ends.
  encodeWithOffsets(text) {
    const codes = codesOf(text), { ids, spans } = this.#parts(codes);
    return { ids, spans: visibleTokenSpans(this.tables, codes, spans) };
  }

  // The tokens that are kept if there is room for `length` of them.
  cut(ids, length) {
    return this.rules.truncation_side === "left" ? ids.slice(Math.max(0, ids.length - length)) : ids.slice(0, length);
  }

  // Each character for itself in lower case.
  #inLowerCase(text) {
    const smallOf = code => this.tables.lowerOf.get(code) ?? [code];
    return textOf(codesOf(text).flatMap(smallOf));
  }

  // Added tokens are found first; the text between them is tokenized. White space before a plain one is a token, unless
  // it is at the ends of the text between special ones.
  #parts(codes) {
    if (!this.added.length) return this.encodePart(codes);
    const ids = [], spans = [];
    let start = 0, isAfterPlain = false;
    const addPart = (end, nextId) => {
      if (end === start) return;
      const part = this.encodePart(codes.slice(start, end));
      const endsInSpace = this.tables.is(codes[end - 1], IN.space);
      part.ids.forEach((id, i) => { ids.push(id); spans.push(part.spans[i].map(place => start + place)); });
      const isInside = isAfterPlain || part.ids.length;
      const hasSpace = endsInSpace && isInside && this.idsAfterSpace.has(nextId);
      if (hasSpace && this.spaceId !== null) { ids.push(this.spaceId); spans.push([end, end]); }
    };
    for (let place = 0; place < codes.length;) {
      const length = this.#addedAt(codes, place);
      if (!length) { place++; continue; }
      const text = textOf(codes.slice(place, place + length));
      const id = this.addedIds.get(text) ?? this.addedIds.get(this.#inLowerCase(text));
      addPart(place, id);
      ids.push(id);
      spans.push([place, place + length]);
      isAfterPlain = this.idsAfterSpace.has(id);
      start = place += length;
    }
    addPart(codes.length, null);
    return { ids, spans };
  }

  #addedAt(codes, place) {
    for (const forms of this.added) {
      if (place + forms.length > codes.length) continue;
      if (forms.every((form, i) => form.includes(String.fromCodePoint(codes[place + i])))) return forms.length;
    }
    return 0;
  }
}

// --- WordPiece ---

const MOST_CHARACTERS = 200;  // in a word; a longer word is unknown
const MOST_CACHED_WORDS = 1 << 16;

class WordPieceTokenizer extends Tokenizer {
  constructor(data) {
    super(data);
    this.tokens = data.tokens;
    this.idOf = new Map(data.tokens.map((token, id) => [token, id]));
    this.longest = data.tokens.reduce((most, token) => Math.max(most, token.length), 0);
    this.cache = new Map();
  }

  idWithinWord(id) { return id; }
  clean(text) { return text; }

  encodePart(codes) {
    const { split, places } = this.splitWords(codes);
    const ends = endsOf(places, codes.length);
    const ids = [], spans = [];
    for (let i = 0; i < split.length;) {
      if (this.tables.is(split[i], IN.space)) { i++; continue; }
      const first = i;
      while (i < split.length && !this.tables.is(split[i], IN.space)) i++;
      const word = this.#tokensOf(split.slice(first, i));
      let start = first;
      word.forEach(([id, length]) => {
        ids.push(id);
        spans.push([places[start], ends.get(places[start + length - 1])]);
        start += length;
      });
    }
    return { ids, spans };
  }

  // The code points with blanks between words, and the place in the text from which each comes.
  splitWords(codes) {
    const { tables, rules, cleaning } = this;
    let split = [], places = [];
    const add = (code, place) => { split.push(code); places.push(place); };
    codes.forEach((code, place) => {
      if (tables.is(code, IN.removed)) return;
      const isAlone = rules.separates_chinese && tables.is(code, IN.ideograph);
      if (isAlone) add(BLANK, place);
      add(tables.is(code, IN.blank) ? BLANK : code, place);
      if (isAlone) add(BLANK, place);
    });

    let stripsAccents = rules.strips_accents;
    if (cleaning.do_lower_case) {
      stripsAccents = !cleaning.keep_accents;
      [split, places] = this.#each(split, places, emit => tables.lower(split, emit));
    }
    if (stripsAccents) {
      [split, places] = this.#each(split, places, emit => split.forEach(
        (code, i) => tables.decomposed(code).forEach(part => emit(part, i))));
      tables.order(split, places);
      [split, places] = this.#each(split, places, emit => split.forEach(
        (code, i) => { if (!tables.is(code, IN.accent)) emit(code, i); }));
      places.sort((a, b) => a - b);
    }
    [split, places] = this.#each(split, places, emit => split.forEach((code, i) => {
      const isAlone = tables.is(code, IN.punctuation);
      if (isAlone) emit(BLANK, i);
      emit(code, i);
      if (isAlone) emit(BLANK, i);
    }));
    return { split, places };
  }

  // A new text from an old one, with the places that the old one has.
  #each(split, places, run) {
    const newSplit = [], newPlaces = [];
    run((code, i) => { newSplit.push(code); newPlaces.push(places[i]); });
    return [newSplit, newPlaces];
  }

  // [[id, number of characters], ...]: the longest token that begins the word, then that of the rest, and so on.
  #tokensOf(codes) {
    const word = textOf(codes), cached = this.cache.get(word);
    if (cached) return cached;
    const tokens = this.#longestTokens(codes, word) ?? [[this.ids.unk, codes.length]];
    if (this.cache.size < MOST_CACHED_WORDS) this.cache.set(word, tokens);
    return tokens;
  }

  #longestTokens(codes, word) {
    if (codes.length > MOST_CHARACTERS) return null;
    // Where each character begins in the string: "𠀋a" -> 0, 2, 3.
    const offsets = [0];
    for (const code of codes) offsets.push(offsets.at(-1) + (code > 0xffff ? 2 : 1));
    const tokens = [];
    for (let start = 0; start < codes.length;) {
      const prefix = start ? CONTINUES_WORD : "";
      let end = Math.min(codes.length, start + this.longest), id;
      for (; end > start; end--) {
        id = this.idOf.get(prefix + word.slice(offsets[start], offsets[end]));
        if (id !== undefined) break;
      }
      if (id === undefined) return null;
      tokens.push([id, end - start]);
      start = end;
    }
    return tokens;
  }
}

// --- SentencePiece ---

const UNKNOWN_PENALTY = 10;  // unigram_model.cc, kUnkPenalty
const SMALLEST_FLOAT = 2 ** -126;  // FLT_MIN, with which the search for the best score begins there
const NORMAL = 1, USER_DEFINED = 4, UNUSED = 5;  // types of pieces (sentencepiece_model.proto)

class SentencePieceTokenizer extends Tokenizer {
  constructor(data) {
    super(data);
    this.tokens = data.tokens;
    this.types = data.types;
    this.scores = Float32Array.from(data.scores);
    this.normalizer = new Normalizer(data.normalizer, data.tokens.filter((_, id) => data.types[id] === USER_DEFINED));
    this.hasBytes = data.byte_fallback;
    this.allIds = new Map(data.tokens.map((token, id) => [token, id]));
    const isMatched = id => [NORMAL, USER_DEFINED, UNUSED].includes(data.types[id]);
    this.idOf = new Map(data.tokens.map((token, id) => [token, id]).filter(([, id]) => isMatched(id)));
    this.longest = 0;
    let least = Infinity;
    this.bestScore = SMALLEST_FLOAT;
    this.scores.forEach((score, id) => {
      if (isMatched(id)) this.longest = Math.max(this.longest, codesOf(data.tokens[id]).length);
      if (data.types[id] !== NORMAL) return;
      least = Math.min(least, score);
      this.bestScore = Math.max(this.bestScore, score);
    });
    this.unknownScore = Math.fround(least - UNKNOWN_PENALTY);
  }

  tokenToId(token) { return this.allIds.get(token) ?? this.ids.unk; }

  idWithinWord(id) {
    const token = this.tokens[id];
    if (token === MARKER) return -1;
    const unmarked = this.tokenToId(token.startsWith(MARKER) ? token.slice(1) : token);
    return unmarked === this.ids.unk ? id : unmarked;
  }

  clean(text) { return textOf(this.#cleaned(codesOf(text)).cleaned); }

  // White space collapses, compatibility forms are decomposed, accents go, and letters become small.
  #cleaned(codes) {
    const { tables, cleaning } = this;
    let first = 0, last = codes.length;
    while (first < last && tables.is(codes[first], IN.space)) first++;
    while (last > first && tables.is(codes[last - 1], IN.space)) last--;
    let cleaned = [], places = [];
    for (let place = first; place < last; place++) {
      let code = codes[place];
      if (tables.is(code, IN.space)) {
        if (tables.is(codes[place - 1], IN.space)) continue;
        cleaned.push(BLANK);
        places.push(place);
        continue;
      }
      if (code >= 0xd800 && code <= 0xdfff) code = REPLACEMENT;  // half a character
      for (const part of cleaning.keep_accents ? [code] : tables.decomposed(code)) {
        if (cleaning.keep_accents || !tables.combining.has(part)) { cleaned.push(part); places.push(place); }
      }
    }
    if (cleaning.do_lower_case) {
      const small = [], placesOfSmall = [];
      tables.lower(cleaned, (code, i) => { small.push(code); placesOfSmall.push(places[i]); });
      [cleaned, places] = [small, placesOfSmall];
    }
    return { cleaned, places, end: last };
  }

  encodePart(codes) {
    const { cleaned, places, end: endOfText } = this.#cleaned(codes);
    const ends = endsOf(places, endOfText);
    const ids = [], spans = [];
    const isSpace = place => this.tables.is(cleaned[place], IN.space);
    let after = [codes.length, codes.length];  // the span of the token that follows
    for (const piece of this.pieces(cleaned).reverse()) {
      let start = piece.begin, end = piece.end;
      while (start < piece.end && isSpace(start)) start++;
      while (end > piece.begin && isSpace(end - 1)) end--;
      const tokens = this.#tokensOf(piece);
      for (let i = tokens.length - 1; i >= 0; i--) {
        const length = codesOf(tokens[i].text.replaceAll(MARKER, "")).length;
        const first = i ? Math.max(start, end - length) : start;
        if (first < end) after = [places[first], ends.get(places[end - 1])];
        // Without characters of its own, it is a part of a character of the next token, or a marker.
        ids.push(tokens[i].id);
        spans.push(length ? after : [after[0], after[0]]);
        end = first;
      }
    }
    return { ids: ids.reverse(), spans: spans.reverse() };
  }

  // The digit-comma rule: "▁1999," becomes "▁1999" and ",".
  #tokensOf(piece) {
    if (!this.#endsInDigitComma(piece.text)) return [piece];
    const number = codesOf(piece.text.slice(0, -1).replaceAll(MARKER, ""));
    const texts = this.pieces(number).map(part => part.text);
    if (texts.length && texts[0].startsWith(MARKER) && !piece.text.startsWith(MARKER)) {
      if (texts[0].length > 1) texts[0] = texts[0].slice(1);
      else texts.shift();
    }
    return [...texts, ","].map(text => ({ text, id: this.tokenToId(text) }));
  }

  #endsInDigitComma(text) {
    const codes = codesOf(text.slice(-3));
    return codes.length > 1 && text.endsWith(",") && this.tables.is(codes.at(-2), IN.digit);
  }

  // [{text, id, begin, end}, ...]: the pieces of a cleaned text, and the range of its code points that each stands for.
  pieces(cleaned) {
    const { codes, origins } = this.normalizer.normalize(cleaned);
    const pieces = [];
    let last = null;  // the piece before, if it is unknown
    for (const [start, end, id] of this.#bestPath(codes)) {
      const text = textOf(codes.slice(start, end));
      const begin = origins[start], stop = origins[end];
      if (id !== this.ids.unk) {
        pieces.push({ text, id, begin, end: stop });
        last = null;
      } else if (this.hasBytes) {
        const bytes = new TextEncoder().encode(text);
        bytes.forEach((byte, i) => {
          const name = `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
          // The last byte stands for the character.
          const range = i === bytes.length - 1 ? { begin, end: stop } : { begin, end: begin };
          pieces.push({ text: name, id: this.tokenToId(name), ...range });
        });
      } else if (last) {  // unknown characters are one piece
        last.text += text;
        last.end = stop;
      } else {
        last = { text, id, begin, end: stop };
        pieces.push(last);
      }
    }
    return pieces;
  }

  // The most probable pieces, [start, end, id] each. Sums are float32 and ties go to the first, as in
  // unigram_model.cc (EncodeOptimized).
  #bestPath(codes) {
    const text = textOf(codes), size = codes.length;
    const offsets = new Int32Array(size + 1);
    codes.forEach((code, i) => { offsets[i + 1] = offsets[i] + (code > 0xffff ? 2 : 1); });
    const best = new Float32Array(size + 1), from = new Int32Array(size + 1).fill(-1), ids = new Int32Array(size + 1);
    const offer = (start, end, id, score) => {
      if (from[end] >= 0 && !(score > best[end])) return;
      best[end] = score;
      from[end] = start;
      ids[end] = id;
    };
    for (let start = 0; start < size; start++) {
      let hasSingle = false;
      const most = Math.min(size, start + this.longest);
      for (let end = start + 1; end <= most; end++) {
        const id = this.idOf.get(text.slice(offsets[start], offsets[end]));
        if (id === undefined || this.types[id] === UNUSED) continue;
        const isUserDefined = this.types[id] === USER_DEFINED;
        const score = isUserDefined ? (end - start) * this.bestScore - 0.1 : this.scores[id];
        offer(start, end, id, score + best[start]);
        hasSingle ||= end === start + 1;
      }
      if (!hasSingle) offer(start, start + 1, this.ids.unk, Math.fround(this.unknownScore + best[start]));
    }
    const path = [];
    for (let end = size; end > 0; end = from[end]) path.push([from[end], end, ids[end]]);
    return path.reverse();
  }
}

// The normalization that a SentencePiece model does itself (normalizer.cc).
class Normalizer {
  constructor({ charsmap, add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_as_suffix }, symbols) {
    this.addsPrefix = add_dummy_prefix;
    this.removesSpaces = remove_extra_whitespaces;
    this.space = escape_whitespaces ? MARKER.codePointAt(0) : BLANK;
    this.isSuffix = whitespace_as_suffix;
    this.symbols = symbols.map(codesOf).sort((a, b) => b.length - a.length);
    this.encoder = new TextEncoder();
    if (!charsmap) return;
    const bytes = Uint8Array.from(atob(charsmap), char => char.charCodeAt(0));
    const view = new DataView(bytes.buffer), size = view.getUint32(0, true);
    this.units = Uint32Array.from({ length: size / 4 }, (_, i) => view.getUint32(4 + 4 * i, true));
    this.replacements = bytes.subarray(4 + size);
  }

  // {codes, origins}: the normalized text, and for each of its code points and its end the place in the text.
  normalize(text) {
    const codes = [], origins = [];
    let place = 0;
    const isBlank = ({ codes }) => codes.length === 1 && codes[0] === BLANK;
    if (this.removesSpaces) {
      while (place < text.length) {
        const prefix = this.#prefix(text, place);
        if (!isBlank(prefix)) break;
        place += prefix.length;
      }
    }
    if (place === text.length) return { codes, origins: [place] };

    const addSpace = () => { codes.push(this.space); origins.push(place); };
    if (this.addsPrefix && !this.isSuffix) addSpace();
    let isAfterSpace = this.removesSpaces;
    while (place < text.length) {
      const prefix = this.#prefix(text, place);
      let first = 0;
      while (isAfterSpace && first < prefix.codes.length && prefix.codes[first] === BLANK) first++;
      const added = prefix.codes.slice(first);
      for (const code of added) {
        codes.push(code === BLANK ? this.space : code);
        origins.push(place);
      }
      if (added.length) isAfterSpace = added.at(-1) === BLANK;
      place += prefix.length;
      if (!this.removesSpaces) isAfterSpace = false;
    }
    if (this.removesSpaces) {
      while (codes.length && codes.at(-1) === this.space) { codes.pop(); place = origins.pop(); }
    }
    if (this.addsPrefix && this.isSuffix) addSpace();
    origins.push(place);
    return { codes, origins };
  }

  // What the beginning of the rest of a text becomes, and how many code points that beginning has.
  #prefix(text, place) {
    for (const symbol of this.symbols) {
      if (symbol.every((code, i) => text[place + i] === code)) return { codes: symbol, length: symbol.length };
    }
    const found = this.units ? this.#longestRule(text, place) : null;
    return found ?? { codes: [text[place]], length: 1 };
  }

  // The longest rule that matches; rules are in a double array (Darts) over the bytes of UTF-8.
  #longestRule(text, place) {
    const { units } = this;
    const offset = unit => ((unit >>> 10) << ((unit & 0x200) >>> 6)) >>> 0;
    let node = offset(units[0]), found = null;
    for (let end = place; end < text.length; end++) {
      for (const byte of this.encoder.encode(String.fromCodePoint(text[end]))) {
        node = (node ^ byte) >>> 0;
        const unit = units[node];
        if (unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return found;
        node = (node ^ offset(unit)) >>> 0;
        if ((unit >>> 8) & 1) {
          const value = units[node] & 0x7fffffff;
          const stop = this.replacements.indexOf(0, value);
          const bytes = this.replacements.subarray(value, stop < 0 ? undefined : stop);
          found = { codes: codesOf(new TextDecoder().decode(bytes)), length: end + 1 - place };
        }
      }
    }
    return found;
  }
}

const makeTokenizer = data => data.kind === "wordpiece" ? new WordPieceTokenizer(data) : new SentencePieceTokenizer(data);

// --- Visible characters (albert_tf/text/visible.py) ---

function visibleCharacters(tables, codes) {
  const visible = [];
  let hasCase = false;  // of the last character that is not a mark or a selector of the one before it
  for (const code of codes) {
    const isAfterVisible = visible.length > 0 && visible.at(-1);
    if (tables.is(code, IN.selector)) visible.push(isAfterVisible && !hasCase);
    else if (tables.is(code, IN.invisible)) visible.push(false);
    else if (tables.is(code, IN.mark)) visible.push(isAfterVisible);
    else { visible.push(true); hasCase = tables.is(code, IN.twoCases); }
  }
  return visible;
}

// Spans without the invisible characters at their ends; without visible characters, empty ones.
function visibleParts(tables, codes, spans) {
  const visible = visibleCharacters(tables, codes);
  return spans.map(([start, end]) => {
    while (end > start && !visible[end - 1]) end--;
    while (start < end && !visible[start]) start++;
    return [start, end];
  });
}

// The same for ascending spans of tokens: that of a token without a visible character stays, and an empty one moves to
// where the next token begins.
function visibleTokenSpans(tables, codes, spans) {
  const parts = visibleParts(tables, codes, spans), moved = [];
  let next = codes.length;
  for (let i = spans.length - 1; i >= 0; i--) {
    const [start, end] = parts[i][0] < parts[i][1] ? parts[i] : spans[i];
    moved.push(start === end ? [next, next] : [start, end]);
    if (start !== end) next = start;
  }
  return moved.reverse();
}
