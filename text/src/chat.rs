//! Token ids of a conversation.

use chrono::NaiveDateTime;

use crate::template::{self, ChatTemplate, RenderLimits, Text, Variables};
use crate::tokenizer::{SpecialTokens, TextTokenizer};

/// Characters that never stand in text for interchange (Unicode, section 23.7).
const NONCHARACTERS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Roles that templates spell out, perhaps within a special token such as `<|user|>`.
const ROLES: [&str; 7] =
    ["system", "developer", "user", "assistant", "tool", "function", "ipython"];

/// A rendered conversation in which marks show where text of the messages, tools or documents could
/// be taken for a special token.
pub struct MarkedText {
    text: String,
    mark: char,
}

/// Renders the conversation. `special` are the tokenizer's special tokens.
pub fn render(
    template: &ChatTemplate,
    mut variables: Variables,
    special: &[String],
    continue_final: bool,
    now: NaiveDateTime,
    limits: RenderLimits,
) -> Result<MarkedText, String> {
    let marker = Marker::new(&variables, special)?;
    template::edit_texts(&mut variables, &|text, kind| marker.mark(text, kind));
    let text = template.render(variables, continue_final, now, limits)?;
    Ok(MarkedText { text, mark: marker.mark })
}

/// Encodes a rendered conversation. The template's special tokens become their ids. One that holds
/// text of the messages, tools or documents does not: it is encoded like any other text, so that
/// nobody whose text enters a conversation can end a turn or begin one.
pub fn encode(
    tokenizer: &TextTokenizer,
    rendered: &MarkedText,
    special: &[String],
) -> Result<Vec<u32>, String> {
    let mut ids = Vec::new();
    for (piece, kind) in split(rendered, &Words::new(special.to_vec())) {
        ids.extend(tokenizer.encode(&piece, kind, false)?);
    }
    Ok(ids)
}

/// Words that are looked for at many places of a text.
struct Words {
    sorted: Vec<String>,
    longest: usize,
}

impl Words {
    fn new(mut words: Vec<String>) -> Self {
        words.sort_unstable();
        let longest = words.iter().map(String::len).max().unwrap_or(0);
        Self { sorted: words, longest }
    }

    /// The length of the longest word that `text` begins with.
    fn at_start(&self, text: &str) -> Option<usize> {
        let mut found = None;
        let mut range = self.sorted.as_slice();
        for (at, byte) in text.bytes().enumerate() {
            // The words of the range have the same first `at` bytes.
            let begin = range.partition_point(|word| word.as_bytes().get(at) < Some(&byte));
            let end = range.partition_point(|word| word.as_bytes().get(at) <= Some(&byte));
            range = &range[begin..end];
            match range.first() {
                None => break,
                Some(word) if word.len() == at + 1 => found = Some(word.len()),
                Some(_) => {}
            }
        }
        found
    }
}

/// Puts a noncharacter before every place of a text where a special token begins, or from where the
/// text may be part of one together with the text around it.
struct Marker {
    mark: char,
    /// Special tokens in lower case, since a template may change the case.
    special: Words,
}

impl Marker {
    /// Takes a mark that no string of the conversation has.
    fn new(variables: &Variables, special: &[String]) -> Result<Self, String> {
        let text = serde_json::to_string(variables).map_err(|error| error.to_string())?;
        let free = NONCHARACTERS.into_iter().find(|mark| !text.contains(*mark));
        let mark = free.ok_or("the messages use every Unicode noncharacter U+FDD0 to U+FDEF")?;
        let lower = special.iter().map(|token| token.to_ascii_lowercase()).collect();
        Ok(Self { mark, special: Words::new(lower) })
    }

    fn mark(&self, text: &mut String, kind: Text) {
        let lower = text.to_ascii_lowercase();
        let harmless = match kind {
            Text::Role => ROLES.contains(&text.as_str()),
            // Templates look for words such as the type of a part; no special token is a word.
            Text::Other => text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
        };
        if harmless {
            return;
        }
        let mut marked = String::with_capacity(text.len() + 8);
        for (at, c) in text.char_indices() {
            if (at == 0 && self.continues(&lower)) || self.begins(&lower[at..]) {
                marked.push(self.mark);
            }
            marked.push(c);
        }
        *text = marked;
    }

    /// Whether a special token begins at `rest`, or `rest` is the beginning of one.
    fn begins(&self, rest: &str) -> bool {
        let is_beginning =
            || rest.len() < self.special.longest && self.any(|word| word.starts_with(rest));
        self.special.at_start(rest).is_some() || is_beginning()
    }

    /// Whether `text` begins with the end of a special token, or is within one.
    fn continues(&self, text: &str) -> bool {
        self.any(|word| {
            let mut ends = word.char_indices().skip(1).map(|(at, _)| &word[at..]);
            word.contains(text) || ends.any(|end| text.starts_with(end))
        })
    }

    fn any(&self, holds: impl FnMut(&String) -> bool) -> bool {
        self.special.sorted.iter().any(holds)
    }
}

/// Cuts the rendered text, without its marks, so that special tokens that hold a mark are in pieces
/// of their own.
fn split(rendered: &MarkedText, special: &Words) -> Vec<(String, SpecialTokens)> {
    let mut text = String::with_capacity(rendered.text.len());
    let mut marks = Vec::new();
    for (i, part) in rendered.text.split(rendered.mark).enumerate() {
        if i > 0 {
            marks.push(text.len());
        }
        text.push_str(part);
    }
    let mut pieces: Vec<(String, SpecialTokens)> = Vec::new();
    let mut add = |piece: &str, kind| match pieces.last_mut() {
        _ if piece.is_empty() => {}
        Some((last, last_kind)) if *last_kind == kind => last.push_str(piece),
        _ => pieces.push((piece.to_owned(), kind)),
    };
    let mut end = 0;
    for mark in marks {
        // The first special token that begins before the mark, or at it, and ends behind it.
        let first = end.max(mark.saturating_sub(special.longest));
        let found = (first..=mark).filter(|at| text.is_char_boundary(*at)).find_map(|at| {
            let length = special.at_start(&text[at..])?;
            (at + length > mark).then_some((at, at + length))
        });
        if let Some((begin, stop)) = found {
            add(&text[end..begin], SpecialTokens::Recognized);
            add(&text[begin..stop], SpecialTokens::Plain);
            end = stop;
        }
    }
    add(&text[end..], SpecialTokens::Recognized);
    pieces
}
