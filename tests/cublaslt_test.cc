// cuBLASLt is opened when it is asked for, and its absence is a status.

#include <gtest/gtest.h>
#include <moeplan.h>

#include <cstddef>

namespace {

TEST(CublasLt, VersionOrAStatus) {
  size_t version = 7;
  const moeplan_status status = moeplan_cublaslt_version(&version);
  if (status == moeplan_status_success) {
    EXPECT_GE(version, 130000u);
    EXPECT_LT(version, 140000u);
  } else {
    EXPECT_EQ(status, moeplan_status_cublas_error);
    EXPECT_EQ(version, 7u) << "written by a failure";
  }
  size_t again = 7;
  EXPECT_EQ(moeplan_cublaslt_version(&again), status);
  EXPECT_EQ(again, version);
}

TEST(CublasLt, NullIsRefused) {
  EXPECT_EQ(moeplan_cublaslt_version(nullptr), moeplan_status_invalid_argument);
}

}  // namespace
