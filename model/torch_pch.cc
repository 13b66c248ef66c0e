// Compiled once to own the precompiled header that all torch targets reuse.
#include "model/torch.h"
