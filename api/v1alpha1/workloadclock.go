// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// MaxClockExtensions is how many extensions a clock keeps, and so how many a
// workload can have until its time begins anew.
const MaxClockExtensions = 128

// clockNameRoom is how much of a workload's name that of its clock repeats.
const clockNameRoom = 150

// WorkloadClockName is the name of a workload's clock: its kind, its name and a
// hash of both with the group, by which workloads of two groups' kinds, or of two
// long names, have two clocks.
func WorkloadClockName(group, kind, name string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{group, kind, name}, "\x00")))
	return fmt.Sprintf("%s-%s-%s", strings.ToLower(kind), strings.TrimRight(name[:min(len(name), clockNameRoom)], "-."), hex.EncodeToString(sum[:5]))
}
