/* The functions of libzstd 1.5 that package dict calls, by their documented C interface. The library
 * itself is linked through github.com/DataDog/zstd. The declarations are weak, so that this package
 * links on its own while cgo looks at it; in a finished program they are bound to the real ones. */

#ifndef MILLRACE_LIBZSTD_H
#define MILLRACE_LIBZSTD_H

#include <stddef.h>

#define MILLRACE_WEAK __attribute__((weak))

typedef struct ZSTD_CCtx_s ZSTD_CCtx;
typedef struct ZSTD_CDict_s ZSTD_CDict;

MILLRACE_WEAK unsigned ZSTD_versionNumber(void);
MILLRACE_WEAK unsigned ZSTD_isError(size_t code);
MILLRACE_WEAK const char *ZSTD_getErrorName(size_t code);

MILLRACE_WEAK ZSTD_CCtx *ZSTD_createCCtx(void);
MILLRACE_WEAK size_t ZSTD_freeCCtx(ZSTD_CCtx *cctx);
MILLRACE_WEAK size_t ZSTD_CCtx_setParameter(ZSTD_CCtx *cctx, int param, int value);
MILLRACE_WEAK size_t ZSTD_CCtx_refCDict(ZSTD_CCtx *cctx, const ZSTD_CDict *cdict);
MILLRACE_WEAK size_t ZSTD_compress2(ZSTD_CCtx *cctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize);

MILLRACE_WEAK ZSTD_CDict *ZSTD_createCDict(const void *dict, size_t dictSize, int level);
MILLRACE_WEAK size_t ZSTD_freeCDict(ZSTD_CDict *cdict);

/* Values of ZSTD_cParameter. */
enum {
	millrace_c_compressionLevel = 100,
	millrace_c_windowLog = 101,
	millrace_c_contentSizeFlag = 200,
	millrace_c_checksumFlag = 201,
	millrace_c_dictIDFlag = 202
};

/* Dictionary training. */

MILLRACE_WEAK unsigned ZDICT_isError(size_t code);
MILLRACE_WEAK const char *ZDICT_getErrorName(size_t code);

typedef struct {
	int compressionLevel;
	unsigned notificationLevel;
	unsigned dictID;
} ZDICT_params_t;

typedef struct {
	unsigned k; /* length of the segments picked */
	unsigned d; /* length of the strings counted */
	unsigned f;
	unsigned steps;
	unsigned nbThreads;
	double splitPoint;
	unsigned accel;
	unsigned shrinkDict;
	unsigned shrinkDictMaxRegression;
	ZDICT_params_t zParams;
} ZDICT_fastCover_params_t;

MILLRACE_WEAK size_t ZDICT_trainFromBuffer_fastCover(void *dict, size_t dictCapacity, const void *samples,
                                                     const size_t *sampleSizes, unsigned samplesLen,
                                                     ZDICT_fastCover_params_t params);
MILLRACE_WEAK size_t ZDICT_finalizeDictionary(void *dict, size_t dictCapacity, const void *content, size_t contentSize,
                                              const void *samples, const size_t *sampleSizes, unsigned samplesLen,
                                              ZDICT_params_t params);

#endif
