// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"fmt"

	"sluice.dev/api/v1alpha1"
)

// Holder is who has a device.
type Holder struct {
	// Pod is the pod that has it; nil where it is no pod, or nobody knows which.
	Pod *v1alpha1.PodReference
	// PID is the process on it, by its identifier on the host; 0 where none is known.
	PID uint32
	// Why says how it is known, for people: "the kubelet gave it to the pod".
	Why string
}

// String is the holder as messages name it.
func (h Holder) String() string {
	switch {
	case h.Pod != nil && h.PID != 0:
		return fmt.Sprintf("pod %s/%s (process %d)", h.Pod.Namespace, h.Pod.Name, h.PID)
	case h.Pod != nil:
		return fmt.Sprintf("pod %s/%s", h.Pod.Namespace, h.Pod.Name)
	case h.PID != 0:
		return fmt.Sprintf("process %d", h.PID)
	case h.Why != "":
		return h.Why
	default:
		return "somebody"
	}
}

// InUse tells who has what of a GPU right now: the holders by the UUID of their MIG
// device, and under the UUID of the GPU itself who has it whole. An error counts as
// all of it being in use.
//
// It is asked afresh immediately before each instance is destroyed, each mode is set
// and each reset, so it must not answer from a cache, and should take milliseconds.
// It answers for what the kubelet and the API server know: pods that hold a device, and
// pods bound to the node that still wait for one. Which device such a pod will be
// given only the kubelet decides, so all of the profile that nobody has are held by
// it. Processes on the GPU the Engine asks the driver for by itself.
//
// It may be called for several GPUs at once. Where it takes longer than CallTimeout all
// is in use.
type InUse func(ctx context.Context, gpu string) (map[string]Holder, error)
