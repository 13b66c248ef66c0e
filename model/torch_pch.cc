// Compiled once to own the precompiled header shared by all torch targets.
#include "model/torch.h"
