// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"sluice.dev/api/v1alpha1"
)

// Trim is a transform for the cache: of a Notice it keeps what [Decide] reads, and
// leaves out the inputs of its text, which are most of it. A Notice is read live
// before it is sent or written.
func Trim() cache.TransformFunc {
	return func(object any) (any, error) {
		n, ok := object.(*v1alpha1.Notice)
		if !ok {
			return nil, fmt.Errorf("trimming notices: %T is none", object)
		}
		n.ManagedFields = nil
		carried := n.Spec.Inputs[InputCarries]
		n.Spec.Inputs = nil
		if carried != "" {
			n.Spec.Inputs = map[string]string{InputCarries: carried}
		}
		resend, ok := n.Annotations[v1alpha1.AnnotationResend]
		n.Annotations = nil
		if ok {
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: resend}
		}
		return n, nil
	}
}
