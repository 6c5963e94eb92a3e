/* config.h.  Generated from config.h.in by configure.  */
/* config.h.in.  Generated from configure.ac by autoheader.  */

/* Define when built with the CUDA Toolkit */
#define HAVE_CUDA 1

/* Define when built with mpi */
#define HAVE_MPI 1

/* Define when built with nccl */
#define HAVE_NCCL 1

/* Define when built with pmix */
#define HAVE_PMIX 1

/* Name of package */
#define PACKAGE "k3"

/* Define to the address where bug reports for this package should be sent. */
#define PACKAGE_BUGREPORT ""

/* Define to the full name of this package. */
#define PACKAGE_NAME "k3"

/* Define to the full name and version of this package. */
#define PACKAGE_STRING "k3 0.1.0"

/* Define to the one symbol short name of this package. */
#define PACKAGE_TARNAME "k3"

/* Define to the home page for this package. */
#define PACKAGE_URL ""

/* Define to the version of this package. */
#define PACKAGE_VERSION "0.1.0"

/* Version number of package */
#define VERSION "0.1.0"

/* Number of bits in a file offset, on hosts where this is settable. */
/* #undef _FILE_OFFSET_BITS */

/* Define for large files, on AIX-style hosts. */
/* #undef _LARGE_FILES */
