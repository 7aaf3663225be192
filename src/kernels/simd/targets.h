// Which instruction sets the kernels are compiled for. Included before Highway in every file that is compiled
// once per target. Vectors are members of small structs, which types without a fixed size cannot be.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
