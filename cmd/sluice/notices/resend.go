// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Resend asks for a Notice to be sent again, as of an instant of machine time. It fails
// where it is on its way in any case. The mail is the same: who has it already sees it
// once.
func Resend(ctx context.Context, c client.Client, name string, now time.Time) error {
	n, err := get(ctx, c, name)
	if err != nil {
		return err
	}
	switch phase := phaseOf(n); phase {
	case v1alpha1.NoticePending, v1alpha1.NoticeSending:
		when := ""
		if n.Status.RetryAt != nil {
			when = ", the next time at " + n.Status.RetryAt.UTC().Format(time.RFC3339)
		}
		return fmt.Errorf("notice %s is %s: it is sent in any case%s", name, phase, when)
	}
	// A wish counts if it is later than the last attempt, to the second: one of this very
	// second, or of a clock that was ahead, would answer it.
	if last := n.Status.ClaimedAt; last != nil && !now.Truncate(time.Second).After(last.Time) {
		now = last.Add(time.Second)
	}
	patch := client.MergeFrom(n.DeepCopy())
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationResend, now.UTC().Format(time.RFC3339))
	if err := c.Patch(ctx, n, patch, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		return fmt.Errorf("asking for notice %s again: %w%s", name, err, whoMay(err, "get and patch notices"))
	}
	return nil
}
