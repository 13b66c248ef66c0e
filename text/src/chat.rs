//! Token ids of a conversation.

use std::sync::Arc;

use chrono::NaiveDateTime;

use crate::template::{self, ChatTemplate, RenderLimits, Variables};
use crate::tokenizer::{SpecialTokens, TextTokenizer};

/// Characters that never stand in text for interchange (Unicode, section 23.7).
const NONCHARACTERS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Renders the conversation and encodes the text. The template's special tokens become their ids.
/// Those in the messages and tools do not: they are encoded like any other text, so that nobody
/// whose text enters a conversation can end a turn or begin one.
pub fn encode(
    tokenizer: &TextTokenizer,
    template: &Arc<ChatTemplate>,
    mut variables: Variables,
    continue_final: bool,
    now: NaiveDateTime,
    limits: RenderLimits,
) -> Result<Vec<u32>, String> {
    let special = tokenizer.special_tokens();
    let mark = free_mark(&variables)?;
    template::for_each_text(&mut variables, &|text| mark_special(text, &special, mark));
    let rendered = template.render(variables, continue_final, now, limits)?;
    let mut ids = Vec::new();
    for (piece, kind) in split_at_marked(&rendered, &special, mark) {
        ids.extend(tokenizer.encode(&piece, kind, false)?);
    }
    Ok(ids)
}

/// A noncharacter that no string of the conversation has.
fn free_mark(variables: &Variables) -> Result<char, String> {
    let text = serde_json::to_string(variables).map_err(|error| error.to_string())?;
    let free = NONCHARACTERS.into_iter().find(|mark| !text.contains(*mark));
    free.ok_or_else(|| "the messages use every Unicode noncharacter U+FDD0 to U+FDEF".to_owned())
}

/// Puts `mark` before every special token in `text`, and before an end of `text` that begins one,
/// which the text that follows it may complete.
fn mark_special(text: &mut String, special: &[String], mark: char) {
    let begins = |rest: &str| special.iter().any(|s| rest.starts_with(s) || s.starts_with(rest));
    let found: Vec<usize> =
        text.char_indices().map(|(at, _)| at).filter(|at| begins(&text[*at..])).collect();
    for at in found.into_iter().rev() {
        text.insert(at, mark);
    }
}

/// Cuts the rendered text, without its marks, so that each special token that began at a mark is a
/// piece of its own.
fn split_at_marked(
    rendered: &str,
    special: &[String],
    mark: char,
) -> Vec<(String, SpecialTokens)> {
    let escaped = format!("\\u{:04x}", mark as u32); // as tojson(ensure_ascii=true) writes it
    let rendered = rendered.replace(&escaped, mark.encode_utf8(&mut [0; 4]));
    let mut text = String::with_capacity(rendered.len());
    let mut marked = Vec::new();
    for part in rendered.split(mark) {
        text.push_str(part);
        marked.push(text.len());
    }
    let mut pieces = Vec::new();
    let mut end = 0;
    for at in marked {
        let token = special.iter().filter(|s| text[at..].starts_with(*s)).map(|s| s.len()).max();
        if let (Some(length), true) = (token, at >= end) {
            pieces.push((text[end..at].to_owned(), SpecialTokens::Recognized));
            end = at + length;
            pieces.push((text[at..end].to_owned(), SpecialTokens::Plain));
        }
    }
    pieces.push((text[end..].to_owned(), SpecialTokens::Recognized));
    pieces.retain(|(piece, _)| !piece.is_empty());
    pieces
}
