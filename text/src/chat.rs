//! Token ids of a conversation.

use std::sync::Arc;

use chrono::NaiveDateTime;

use crate::template::{self, ChatTemplate, RenderLimits, Text, Variables};
use crate::tokenizer::{SpecialTokens, TextTokenizer};

/// Characters that never stand in text for interchange (Unicode, section 23.7).
const NONCHARACTERS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Roles that templates spell out, perhaps within a special token such as `<|user|>`.
const ROLES: [&str; 7] =
    ["system", "developer", "user", "assistant", "tool", "function", "ipython"];

/// Renders the conversation and encodes the text. The template's special tokens become their ids.
/// One that holds text of the messages, tools or documents does not: it is encoded like any other
/// text, so that nobody whose text enters a conversation can end a turn or begin one.
pub fn encode(
    tokenizer: &TextTokenizer,
    template: &Arc<ChatTemplate>,
    mut variables: Variables,
    continue_final: bool,
    now: NaiveDateTime,
    limits: RenderLimits,
) -> Result<Vec<u32>, String> {
    let special = tokenizer.special_tokens();
    let marker = Marker::new(&variables, &special)?;
    template::edit_texts(&mut variables, &|text, kind| marker.mark(text, kind));
    let rendered = template.render(variables, continue_final, now, limits)?;
    let mut ids = Vec::new();
    for (piece, kind) in marker.split(&rendered, &special) {
        ids.extend(tokenizer.encode(&piece, kind, false)?);
    }
    Ok(ids)
}

/// Puts a noncharacter before every place of a text where a special token begins, or from where the
/// text may be part of one together with the text around it.
struct Marker {
    mark: char,
    /// Special tokens in lower case, since a template may change the case.
    special: Vec<String>,
}

impl Marker {
    /// Takes a mark that no string of the conversation has.
    fn new(variables: &Variables, special: &[String]) -> Result<Self, String> {
        let text = serde_json::to_string(variables).map_err(|error| error.to_string())?;
        let free = NONCHARACTERS.into_iter().find(|mark| !text.contains(*mark));
        let mark = free.ok_or("the messages use every Unicode noncharacter U+FDD0 to U+FDEF")?;
        Ok(Self { mark, special: special.iter().map(|s| s.to_ascii_lowercase()).collect() })
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
        self.special.iter().any(|s| rest.starts_with(s.as_str()) || s.starts_with(rest))
    }

    /// Whether `text` begins with the end of a special token, or is within one.
    fn continues(&self, text: &str) -> bool {
        self.special.iter().any(|s| {
            let mut ends = s.char_indices().skip(1).map(|(at, _)| &s[at..]);
            s.contains(text) || ends.any(|end| text.starts_with(end))
        })
    }

    /// Cuts the rendered text, without its marks, so that every special token that holds a mark is a
    /// piece of its own.
    fn split(&self, rendered: &str, special: &[String]) -> Vec<(String, SpecialTokens)> {
        let mut text = String::with_capacity(rendered.len());
        let mut marks = Vec::new();
        for (i, part) in rendered.split(self.mark).enumerate() {
            if i > 0 {
                marks.push(text.len());
            }
            text.push_str(part);
        }
        let longest = special.iter().map(String::len).max().unwrap_or(0);
        let mut pieces = Vec::new();
        let mut end = 0;
        for mark in marks {
            // The first special token that begins before the mark, or at it, and ends behind it.
            let first = end.max(mark.saturating_sub(longest));
            let found = (first..=mark).filter(|at| text.is_char_boundary(*at)).find_map(|at| {
                let tokens = special.iter().filter(|s| text[at..].starts_with(s.as_str()));
                let length = tokens.map(String::len).max()?;
                (at + length > mark).then_some((at, at + length))
            });
            if let Some((begin, stop)) = found {
                pieces.push((text[end..begin].to_owned(), SpecialTokens::Recognized));
                pieces.push((text[begin..stop].to_owned(), SpecialTokens::Plain));
                end = stop;
            }
        }
        pieces.push((text[end..].to_owned(), SpecialTokens::Recognized));
        pieces.retain(|(piece, _)| !piece.is_empty());
        pieces
    }
}
