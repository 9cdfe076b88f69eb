// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver is nvml.Library on NVIDIA's own library, libnvidia-ml.so.1, through
// github.com/NVIDIA/go-nvml.
//
// Enters: calls on GPUs by their UUIDs. Leaves: what the driver answers, its errors as
// values of nvml.Error with the name of the library's function that gave them. The
// traps of the library and of its binding end here: functions that an old library
// lacks, which would end the process; lists that the binding cannot take empty; handles
// that a reset makes another GPU's; profiles that are counted wrong.
//
// It never decides what to do, never repeats a call that changes something, and lets no
// type of the binding out.
package driver
