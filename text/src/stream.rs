//! Decoding token by token.

use crate::tokenizer::TextTokenizer;

/// U+FFFD that an incomplete character may show as: a tokenizer with byte fallback has one per byte.
const MAX_INCOMPLETE: usize = 3;
/// Longest list of tokens that is decoded at once.
const MAX_WINDOW: usize = 64;

/// Decodes a growing list of ids. No piece ends within a character. Joined, the pieces are the text
/// of all ids, unless that has broken characters (a tokenizer with byte fallback then gives up the
/// intact characters beside them, too).
pub struct StreamDecoder {
    skip_special: bool,
    /// Tokens that are decoded together: those of an earlier piece, for context, then newer ones.
    window: Vec<u32>,
    context: usize,
    /// The text of the window that was returned.
    returned: String,
}

impl StreamDecoder {
    pub fn new(skip_special: bool) -> Self {
        Self { skip_special, window: Vec::new(), context: 0, returned: String::new() }
    }

    /// The text that `id` completes; empty while a character is incomplete.
    pub fn push(&mut self, tokenizer: &TextTokenizer, id: u32) -> Result<String, String> {
        if self.skip_special && tokenizer.is_special(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        let text = tokenizer.decode(&self.window, self.skip_special)?;
        if self.window.len() >= MAX_WINDOW {
            return self.restart(tokenizer, &text);
        }
        let mut complete = text.as_str();
        for _ in 0..MAX_INCOMPLETE {
            complete = complete.strip_suffix('\u{fffd}').unwrap_or(complete);
        }
        // Byte fallback shows an incomplete character and intact ones before it as U+FFFD.
        let Some(piece) = complete.strip_prefix(self.returned.as_str()).map(str::to_owned) else {
            return Ok(String::new());
        };
        self.returned.push_str(&piece);
        if complete.len() == text.len() && !piece.is_empty() {
            self.window.drain(..self.context);
            self.context = self.window.len();
            self.returned = tokenizer.decode(&self.window, self.skip_special)?;
        }
        Ok(piece)
    }

    /// The rest, with U+FFFD for an incomplete character.
    pub fn finish(&mut self, tokenizer: &TextTokenizer) -> Result<String, String> {
        let text = tokenizer.decode(&self.window, self.skip_special)?;
        Ok(text.get(self.returned.len()..).unwrap_or_default().to_owned())
    }

    /// Returns all of `text` and keeps only the newest token of the window.
    fn restart(&mut self, tokenizer: &TextTokenizer, text: &str) -> Result<String, String> {
        let piece = text.get(self.returned.len()..).unwrap_or_default().to_owned();
        self.window.drain(..self.window.len() - 1);
        self.context = 1;
        self.returned = tokenizer.decode(&self.window, self.skip_special)?;
        Ok(piece)
    }
}
