//! Encoding and decoding with a tokenizer.json, as the `tokenizers` library does it.

use tokenizers::{
    AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Token,
    Tokenizer,
};

/// Whether special tokens that stand in the text become their ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SpecialTokens {
    /// As in a rendered chat template.
    Recognized,
    /// As in text of users, tools and environments: they are encoded like any other text.
    Plain,
}

pub struct TextTokenizer {
    tokenizer: Tokenizer,
    /// The added tokens without the special ones.
    plain: AddedVocabulary,
    vocab_size: u32,
    longest_token_bytes: usize,
}

impl TextTokenizer {
    /// Parses the content of tokenizer.json. Ignores its truncation and padding settings, as
    /// `encode` of transformers does.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(|e| e.to_string())?;
        tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
        tokenizer.with_padding(None);
        let mut plain = tokenizer.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        let vocab = tokenizer.get_vocab(true);
        let vocab_size = vocab.values().max().map_or(0, |id| id.saturating_add(1));
        let longest_token_bytes = vocab.keys().map(String::len).max().unwrap_or(0);
        Ok(Self { tokenizer, plain, vocab_size, longest_token_bytes })
    }

    /// Ids of `text`. Fails on a character that the vocabulary cannot express, which the library
    /// would leave out. `add_special` adds the tokens of the post-processor, such as a leading bos.
    pub fn encode(
        &self,
        text: &str,
        special: SpecialTokens,
        add_special: bool,
    ) -> Result<Vec<u32>, String> {
        let added = match special {
            SpecialTokens::Recognized => self.tokenizer.get_added_vocabulary(),
            SpecialTokens::Plain => &self.plain,
        };
        let run = || -> tokenizers::Result<Vec<u32>> {
            let mut pieces = added.extract_and_normalize(self.tokenizer.get_normalizer(), text);
            if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut pieces)?;
            }
            let model = self.tokenizer.get_model();
            pieces.tokenize(|piece| model.tokenize(piece.get()))?;
            if let Some(c) = left_out(&pieces) {
                let character = describe(c);
                return Err(format!("character {character} is not in the tokenizer's vocabulary").into());
            }
            let encoding = pieces.into_encoding(None, 0, OffsetType::None)?;
            let encoding = self.tokenizer.post_process(encoding, None, add_special)?;
            Ok(encoding.get_ids().to_vec())
        };
        run().map_err(|e| e.to_string())
    }

    /// Text of `ids`. Ids outside the vocabulary are ignored; U+FFFD stands for broken characters.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, String> {
        self.tokenizer.decode(ids, skip_special).map_err(|e| e.to_string())
    }

    /// Contents of the special tokens.
    pub fn special_tokens(&self) -> Vec<String> {
        let added = self.tokenizer.get_added_tokens_decoder();
        added.into_values().filter(|token| token.special).map(|token| token.content).collect()
    }

    pub fn is_special(&self, id: u32) -> bool {
        let added = self.tokenizer.get_added_vocabulary();
        added.simple_id_to_token(id).is_some_and(|token| added.is_special_token(&token))
    }

    /// Largest id + 1.
    pub fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    /// Of the text that one token stands for, at most.
    pub fn longest_token_bytes(&self) -> usize {
        self.longest_token_bytes
    }

    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }
}

/// The first character that no token covers.
fn left_out(pieces: &PreTokenizedString) -> Option<char> {
    let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
    splits.into_iter().find_map(|(text, _, tokens)| {
        let end = tokens.as_deref().map_or(0, covered);
        text.get(end..).and_then(|rest| rest.chars().next())
    })
}

fn describe(c: char) -> String {
    let code = format!("U+{:04X}", c as u32);
    if c.is_ascii_graphic() { format!("'{c}' ({code})") } else { code }
}

/// Bytes that the tokens cover without a gap.
fn covered(tokens: &[Token]) -> usize {
    tokens.iter().fold(0, |end, token| match token.offsets.0 <= end {
        true => end.max(token.offsets.1),
        false => end,
    })
}
