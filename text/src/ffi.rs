//! The C ABI. text/freshet_text.h describes every function.

use std::panic::{self, AssertUnwindSafe};
use std::slice;
use std::sync::{Arc, Once};
use std::time::Duration;

use crate::chat;
use crate::confined::{self, Bounds, Failure};
use crate::stream::StreamDecoder;
use crate::template::{ChatTemplate, RenderLimits, Variables};
use crate::tokenizer::{SpecialTokens, TextTokenizer};

/// Of a conversation: messages, members and list items. Each takes far more bytes than its text.
const MAX_VALUES: usize = 100_000;
const PARSE_BOUNDS: Bounds = Bounds { memory_bytes: 256 << 20, time: Duration::from_secs(10) };

/// An owned array. Empty arrays have no allocation.
#[repr(C)]
pub struct Array<T> {
    data: *mut T,
    size: usize,
}

impl<T> Array<T> {
    fn new(items: Vec<T>) -> Self {
        let size = items.len();
        let data = Box::into_raw(items.into_boxed_slice()).cast();
        Self { data, size }
    }

    /// # Safety
    /// The array was made by `new` and is freed once.
    unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(slice::from_raw_parts_mut(self.data, self.size)));
        }
    }
}

type Bytes = Array<u8>;
type Ids = Array<u32>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RenderOptions {
    continue_final: bool,
    now_seconds: i64,
    fuel: u64,
    output_bytes: usize,
    memory_bytes: usize,
    timeout_ms: u64,
}

/// # Safety
/// `data` points to `size` readable items, or `size` is 0.
unsafe fn input<'a, T>(data: *const T, size: usize) -> &'a [T] {
    match size {
        0 => &[],
        _ => slice::from_raw_parts(data, size),
    }
}

/// # Safety
/// As for `input`.
unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str, String> {
    std::str::from_utf8(input(data, size))
        .map_err(|error| format!("text is not UTF-8 at byte {}", error.valid_up_to()))
}

/// Runs `call` and stores its result in `out`, or its error or panic in `error`.
fn answer<T>(out: *mut T, error: *mut Bytes, call: impl FnOnce() -> Result<T, String>) -> bool {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| panic::set_hook(Box::new(|_| {})));
    let result = panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let message = payload.downcast_ref::<String>().map(String::as_str);
        let message = message.or(payload.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Err(format!("internal error: {message}"))
    });
    // SAFETY: the caller passes writable places.
    unsafe {
        match result {
            Ok(value) => out.write(value),
            Err(message) => {
                error.write(Bytes::new(message.into_bytes()));
                return false;
            }
        }
    }
    true
}

#[no_mangle]
pub unsafe extern "C" fn freshet_text_free_bytes(bytes: Bytes) {
    bytes.free();
}

#[no_mangle]
pub unsafe extern "C" fn freshet_text_free_ids(ids: Ids) {
    ids.free();
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_parse(
    json: *const u8,
    size: usize,
    out: *mut *mut Arc<TextTokenizer>,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let tokenizer = TextTokenizer::parse(input(json, size))?;
        Ok(Box::into_raw(Box::new(Arc::new(tokenizer))))
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_free(tokenizer: *mut Arc<TextTokenizer>) {
    drop(Box::from_raw(tokenizer));
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_encode(
    tokenizer: *const Arc<TextTokenizer>,
    data: *const u8,
    size: usize,
    plain_special: bool,
    add_special: bool,
    out: *mut Ids,
    error: *mut Bytes,
) -> bool {
    let special = special_tokens(plain_special);
    answer(out, error, || {
        Ok(Ids::new((*tokenizer).encode(text(data, size)?, special, add_special)?))
    })
}

fn special_tokens(plain: bool) -> SpecialTokens {
    match plain {
        true => SpecialTokens::Plain,
        false => SpecialTokens::Recognized,
    }
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_decode(
    tokenizer: *const Arc<TextTokenizer>,
    ids: *const u32,
    size: usize,
    skip_special: bool,
    out: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let text = (*tokenizer).decode(input(ids, size), skip_special)?;
        Ok(Bytes::new(text.into_bytes()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_vocab_size(tokenizer: *const Arc<TextTokenizer>) -> u32 {
    (*tokenizer).vocab_size()
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_longest_token(tokenizer: *const Arc<TextTokenizer>) -> usize {
    (*tokenizer).longest_token_bytes()
}

#[no_mangle]
pub unsafe extern "C" fn freshet_tokenizer_token_id(
    tokenizer: *const Arc<TextTokenizer>,
    data: *const u8,
    size: usize,
) -> i64 {
    let id = text(data, size).ok().and_then(|token| (*tokenizer).token_id(token));
    id.map_or(-1, i64::from)
}

#[no_mangle]
pub extern "C" fn freshet_stream_new(skip_special: bool) -> *mut StreamDecoder {
    Box::into_raw(Box::new(StreamDecoder::new(skip_special)))
}

#[no_mangle]
pub unsafe extern "C" fn freshet_stream_free(stream: *mut StreamDecoder) {
    drop(Box::from_raw(stream));
}

#[no_mangle]
pub unsafe extern "C" fn freshet_stream_push(
    stream: *mut StreamDecoder,
    tokenizer: *const Arc<TextTokenizer>,
    id: u32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || Ok(Bytes::new((*stream).push(&*tokenizer, id)?.into_bytes())))
}

#[no_mangle]
pub unsafe extern "C" fn freshet_stream_finish(
    stream: *mut StreamDecoder,
    tokenizer: *const Arc<TextTokenizer>,
    out: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || Ok(Bytes::new((*stream).finish(&*tokenizer)?.into_bytes())))
}

#[no_mangle]
pub unsafe extern "C" fn freshet_template_parse(
    source: *const u8,
    size: usize,
    out: *mut *mut Arc<ChatTemplate>,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let source = text(source, size)?.to_owned();
        let template = confined::run(PARSE_BOUNDS, move || ChatTemplate::parse(&source))?;
        Ok(Box::into_raw(Box::new(Arc::new(template))))
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_template_free(template: *mut Arc<ChatTemplate>) {
    drop(Box::from_raw(template));
}

impl RenderOptions {
    fn limits(&self) -> RenderLimits {
        RenderLimits { fuel: self.fuel, output_bytes: self.output_bytes }
    }

    fn bounds(&self) -> Bounds {
        let time = Duration::from_millis(self.timeout_ms);
        Bounds { memory_bytes: self.memory_bytes, time }
    }

    fn now(&self) -> chrono::NaiveDateTime {
        chrono::DateTime::from_timestamp(self.now_seconds, 0).unwrap_or_default().naive_utc()
    }
}

/// An upper bound of the number of values in a JSON text.
fn count_values(json: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' | b',' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Calls `work` on a confined thread with the variables of a JSON object. The members of its
/// `kwargs` become variables too. Sets `busy` if no thread is free.
///
/// # Safety
/// As for `input`, and `busy` is writable.
unsafe fn with_variables<T: Send + 'static>(
    variables: *const u8,
    size: usize,
    bounds: Bounds,
    busy: *mut bool,
    work: impl FnOnce(Variables) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let json = input(variables, size).to_vec();
    if count_values(&json) > MAX_VALUES {
        return Err(format!("the conversation has more than {MAX_VALUES} values"));
    }
    let result = confined::run(bounds, move || {
        let parsed = serde_json::from_slice(&json);
        let mut variables: Variables = parsed.map_err(|error| error.to_string())?;
        if let Some(serde_json::Value::Object(kwargs)) = variables.remove("kwargs") {
            variables.extend(kwargs);
        }
        work(variables)
    });
    busy.write(matches!(result, Err(Failure::Busy)));
    result.map_err(String::from)
}

#[no_mangle]
pub extern "C" fn freshet_template_busy() -> bool {
    confined::busy()
}

#[no_mangle]
pub unsafe extern "C" fn freshet_template_render(
    template: *const Arc<ChatTemplate>,
    variables: *const u8,
    size: usize,
    options: RenderOptions,
    busy: *mut bool,
    out: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let template = Arc::clone(&*template);
        let text = with_variables(variables, size, options.bounds(), busy, move |variables| {
            template.render(variables, options.continue_final, options.now(), options.limits())
        })?;
        Ok(Bytes::new(text.into_bytes()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn freshet_template_encode(
    template: *const Arc<ChatTemplate>,
    tokenizer: *const Arc<TextTokenizer>,
    variables: *const u8,
    size: usize,
    options: RenderOptions,
    busy: *mut bool,
    out: *mut Ids,
    error: *mut Bytes,
) -> bool {
    answer(out, error, || {
        let template = Arc::clone(&*template);
        let special: Arc<[String]> = (*tokenizer).special_tokens().into();
        let names = Arc::clone(&special);
        let rendered = with_variables(variables, size, options.bounds(), busy, move |variables| {
            let (now, limits) = (options.now(), options.limits());
            chat::render(&template, variables, &names, options.continue_final, now, limits)
        })?;
        // Takes time and memory in proportion to the text, which is bounded.
        Ok(Ids::new(chat::encode(&*tokenizer, &rendered, &special)?))
    })
}
