// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Decide writes a decision on an Extension, with a message that may be empty, and
// returns the Extension as it is then. A decision stands: it fails where there is
// one. Who decides, and when, the cluster knows by itself.
func Decide(ctx context.Context, c client.Client, key types.NamespacedName, decision v1alpha1.ExtensionDecision, message string) (*v1alpha1.Extension, error) {
	if n := utf8.RuneCountInString(message); n > maxText {
		return nil, fmt.Errorf("--message: it has %d characters; want at most %d", n, maxText)
	}
	extension := &v1alpha1.Extension{}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(ctx, key, extension); err != nil {
			return err
		}
		if extension.Status.Decision != "" {
			return fmt.Errorf("it was decided already: %s; a decision stands", Outcome(extension, time.Local))
		}
		// With a lock: two who decide at once must not both think it was them.
		patch := client.MergeFromWithOptions(extension.DeepCopy(), client.MergeFromWithOptimisticLock{})
		extension.Status.Decision, extension.Status.Message = decision, message
		return c.Status().Patch(ctx, extension, patch, client.FieldOwner(v1alpha1.FieldManagerCLI))
	})
	if err != nil {
		return nil, fmt.Errorf("extension %s in namespace %s: %w", key.Name, key.Namespace, err)
	}
	return extension, nil
}
