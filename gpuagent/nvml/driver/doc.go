// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver implements nvml.Library with NVIDIA's library libnvidia-ml.so.1, through
// github.com/NVIDIA/go-nvml.
//
// Errors are values of nvml.Error with the name of the failed function. The package handles the
// pitfalls of the library and its binding: functions that an old library lacks, which would end the
// process; empty lists, on which the binding panics; handles that belong to another GPU after a
// reset; wrong profile counts. It repeats no call that changes a GPU, and exposes no type of the
// binding.
package driver
