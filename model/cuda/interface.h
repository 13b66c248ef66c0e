#ifndef FRESHET_MODEL_CUDA_INTERFACE_H_
#define FRESHET_MODEL_CUDA_INTERFACE_H_

// The C interface of libfreshet_cuda.so, which is built by nvcc and loaded at run time
// (cuda_kernels.h). Numbers are fp32 or bf16 (`bf16` is 0 or 1), arithmetic is fp32, and a result
// is rounded once. Pointers to numbers are to the GPU's memory, aligned to the number's size;
// shapes are in host memory. Functions put their work into `stream` (cudaStream_t) and return a
// cudaError_t: cudaErrorInvalidValue for a size outside of the stated limits. `rows` may be 0.
#ifdef __cplusplus
#include <cstdint>
extern "C" {
#endif

// Of this interface. Increased with every change of it.
#define FRESHET_CUDA_VERSION 2
int freshet_cuda_version(void);
const char* freshet_cuda_error(int error);

// out[i] = silu(gate_up[i]) * gate_up[inner + i] for every row of gate_up [rows, 2 * inner].
int freshet_swiglu(const void* gate_up, void* out, int64_t rows, int64_t inner, int bf16,
                   void* stream);
// d_gate_up [rows, 2 * inner], the gradient of gate_up, from that of the output, d [rows, inner].
int freshet_swiglu_gradient(const void* gate_up, const void* d, void* d_gate_up, int64_t rows,
                            int64_t inner, int bf16, void* stream);

// x fp32 [rows, width]. If `delta` is not null, first x += delta [rows, width]. Then
// out = x / rms(x) * weight; weight fp32 [width]. delta and out have the type of `bf16`. If
// `inverses` is not null, it receives 1 / rms(x) of every row.
int freshet_rms_norm(float* x, const void* delta, const float* weight, void* out, float* inverses,
                     int64_t rows, int64_t width, float epsilon, int bf16, void* stream);
// d_x [rows, width], the gradient of x, and parts of the weight's gradient, whose sum is it: fp32
// [FRESHET_RMS_PARTS, width]. From the gradient of the output, d [rows, width] in the type of
// `bf16`, and the inverses of freshet_rms_norm. There is a part for each of the blocks, two for
// every multiprocessor of an H100; a block keeps a row of sums in shared memory, so that width is
// at most FRESHET_RMS_MOST.
#define FRESHET_RMS_PARTS 264
#define FRESHET_RMS_MOST 8192
int freshet_rms_norm_gradient(const float* x, const float* weight, const float* inverses,
                              const void* d, float* d_x, float* d_weight_parts, int64_t rows,
                              int64_t width, int bf16, void* stream);

// Rotates the pairs (i, i + half) of every head of `in`, rows of `heads` adjacent heads that are
// row_stride numbers apart, by the angle of the row's position, or back by it. cos and sin fp32
// [positions, half]. out [rows, heads, 2 * half].
int freshet_rope(const void* in, int64_t row_stride, const float* cos, const float* sin,
                 const int64_t* positions, void* out, int64_t rows, int64_t heads, int64_t half,
                 int back, int bf16, void* stream);

// out[r] = the sum of in[places[i]] for starts[r] <= i < starts[r + 1], rows of `width` numbers;
// int32 starts [rows + 1].
int freshet_gather_sum(const void* in, const int32_t* starts, const int32_t* places, void* out,
                       int64_t rows, int64_t width, int bf16, void* stream);

// One decoding step: a token each of `rows` sequences. What changes from step to step is in the
// GPU's memory, so that the calls can be captured in a CUDA graph:
//   inputs int32: [0] entries of a sequence's block table; then, each [rows]: token ids, positions,
//   slots of the tokens in the cache, and numbers of keys (0: no sequence); then the tables, of
//   blocks of block_tokens slots.
#define FRESHET_DECODE_DIM_LEAST 8
#define FRESHET_DECODE_DIM_MOST 256
#define FRESHET_DECODE_QUERIES_MOST 8  // query heads of a key head
struct freshet_decode_shape {
  int64_t rows, hidden, heads, kv_heads, dim, block_tokens;
  int64_t window;  // of keys that a query sees; 0: all
  int64_t splits;  // parts of a sequence's keys that are computed at once, at least 1
  float epsilon;
  int bf16;
};

// x fp32 [rows, hidden] = embeddings of the tokens.
int freshet_decode_embed(const struct freshet_decode_shape* shape, const int32_t* inputs,
                         const void* embedding, float* x, void* stream);

// From the product qkv [rows, heads + 2 * kv_heads, dim]: adds `bias` (fp32, or null), normalizes
// the heads of queries and keys by q_norm and k_norm (fp32 [dim], or null), and rotates them.
// Queries go to q [rows, heads, dim], keys and values to the slots of the layer's caches
// [slots, kv_heads, dim]; all these have the type of `bf16`. cos and sin fp32 [positions, dim / 2].
// dim is even, at most FRESHET_DECODE_DIM_MOST.
int freshet_decode_rope(const struct freshet_decode_shape* shape, const int32_t* inputs,
                        const void* qkv, const float* bias, const float* q_norm,
                        const float* k_norm, const float* cos, const float* sin, void* q,
                        void* keys, void* values, void* stream);

// Softmax attention of each row's query over its keys; out [rows, heads, dim]. `scratch` fp32
// [rows, heads, splits, dim + 2]. dim is a power of two from FRESHET_DECODE_DIM_LEAST to
// FRESHET_DECODE_DIM_MOST, kv_heads divides heads, and heads / kv_heads is at most
// FRESHET_DECODE_QUERIES_MOST.
int freshet_decode_attention(const struct freshet_decode_shape* shape, const int32_t* inputs,
                             const void* q, const void* keys, const void* values, float* scratch,
                             void* out, void* stream);

// CUDA graphs: what is put into `stream` between begin and end is not done, but recorded.
int freshet_graph_begin(void* stream);
int freshet_graph_end(void* stream, void** graph);  // cudaGraphExec_t; null after an error
int freshet_graph_launch(void* graph, void* stream);
void freshet_graph_destroy(void* graph);
// Copies from pinned host memory.
int freshet_upload(void* to, const void* from, int64_t bytes, void* stream);

#ifdef __cplusplus
}
#endif

#endif  // FRESHET_MODEL_CUDA_INTERFACE_H_
