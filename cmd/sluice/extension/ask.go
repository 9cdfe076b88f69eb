// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// maxText is how many characters a reason and a message may have.
const maxText = 500

// New is the Extension that asks for a target: for more time, which by says, or,
// for a project, for another period of validity, where by stays zero.
func New(target Target, by period.Duration, reason string) (*v1alpha1.Extension, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, errors.New("--reason: say in a sentence why; whoever decides reads it")
	}
	if n := utf8.RuneCountInString(reason); n > maxText {
		return nil, fmt.Errorf("--reason: it has %d characters; want at most %d", n, maxText)
	}
	extension := &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    target.Namespace,
			GenerateName: strings.ToLower(target.Kind) + "-" + target.Name + "-",
		},
		Spec: v1alpha1.ExtensionSpec{Target: target.ExtensionTarget, Action: v1alpha1.ActionExtend, Reason: reason},
	}
	switch {
	case target.isProject() && !by.IsZero():
		return nil, fmt.Errorf("--by %s: a project is renewed by a whole period of its validity; leave --by out", by)
	case target.isProject():
		extension.Spec.Action = v1alpha1.ActionRenew
	case by.IsZero():
		return nil, errors.New("--by: say how much more time the workload shall have, such as 24h")
	default:
		extension.Spec.By = &by
	}
	return extension, nil
}

// Ask makes an Extension, and waits for what becomes of it as [Await] does.
func Ask(ctx context.Context, c client.Client, extension *v1alpha1.Extension, patience Patience) error {
	if err := c.Create(ctx, extension, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		target := extension.Spec.Target
		return fmt.Errorf("asking for %s %s in namespace %s: %w", target.Kind, target.Name, extension.Namespace, err)
	}
	return Await(ctx, c, extension, patience)
}

// Patience is how long a decision is waited for.
type Patience struct {
	// Within is the longest time, of machine time; 0 waits for nothing.
	Within time.Duration
	// Every is how often is looked.
	Every time.Duration
}

// Await waits until an Extension was refused or carried out, and leaves it in
// extension as it was last seen. It is no error if that has not come in time; it
// is one if ctx ends, or if the Extension is deleted.
func Await(ctx context.Context, c client.Reader, extension *v1alpha1.Extension, patience Patience) error {
	if patience.Within <= 0 {
		return nil
	}
	key := client.ObjectKeyFromObject(extension)
	waiting, cancel := context.WithTimeout(ctx, patience.Within)
	defer cancel()
	// The requests do not end with the waiting: one that is late is no answer.
	err := wait.PollUntilContextCancel(waiting, patience.Every, true, func(context.Context) (bool, error) {
		var seen v1alpha1.Extension
		if err := c.Get(ctx, key, &seen); err != nil {
			return false, err
		}
		*extension = seen
		return settled(extension), nil
	})
	if err != nil && (ctx.Err() != nil || waiting.Err() == nil) {
		return fmt.Errorf("waiting for a decision on extension %s: %w", extension.Name, err)
	}
	return nil
}

// settled reports whether nothing more comes of an Extension.
func settled(extension *v1alpha1.Extension) bool {
	switch extension.Status.Decision {
	case v1alpha1.ExtensionRefused:
		return true
	case v1alpha1.ExtensionApproved:
		return extension.Status.NewEnd != nil || carriedOut(extension) != nil
	default:
		return false
	}
}

// carriedOut is what the condition Applied says of an approved Extension; nil while
// that is still to come, and the condition speaks of the time before the decision.
func carriedOut(extension *v1alpha1.Extension) *metav1.Condition {
	applied := meta.FindStatusCondition(extension.Status.Conditions, v1alpha1.ConditionApplied)
	if applied != nil && applied.Reason == v1alpha1.ReasonAwaitingDecision {
		return nil
	}
	return applied
}
