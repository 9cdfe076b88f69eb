// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

// longestExemption is how far ahead an exemption may end. A longer one is a change of the policy: use match.exclude.
const longestExemption = 366 * 24 * time.Hour

// exemptionErrors returns an error for each new or changed exemption that ends too late.
func (v *Validator) exemptionErrors(before, policy *v1alpha1.Policy) field.ErrorList {
	if v.Clock == nil {
		return nil
	}
	latest := v.Clock.Now().Add(longestExemption)
	var errs field.ErrorList
	for i, exemption := range policy.Spec.Exemptions {
		unchanged := before != nil && slices.ContainsFunc(before.Spec.Exemptions, func(old v1alpha1.PolicyExemption) bool {
			return equality.Semantic.DeepEqual(old, exemption)
		})
		if !unchanged && exemption.Until.After(latest) {
			path := field.NewPath("spec", "exemptions").Index(i).Child("until")
			errs = append(errs, field.Invalid(path, exemption.Until.UTC().Format(time.RFC3339), fmt.Sprintf(
				"must not be after %s, in 366 days; to leave projects out without an end, use match.exclude", latest.UTC().Format(time.RFC3339),
			)))
		}
	}
	return errs
}

// exemptionWarnings warns of exemptions that have ended.
func (v *Validator) exemptionWarnings(policy *v1alpha1.Policy) (warnings admission.Warnings) {
	if v.Clock == nil {
		return nil
	}
	now := v.Clock.Now()
	for i, exemption := range policy.Spec.Exemptions {
		if !now.Before(exemption.Until.Time) {
			warnings = append(warnings, fmt.Sprintf(
				"spec.exemptions[%d].until: the exemption ended on %s; remove it", i, exemption.Until.UTC().Format(time.RFC3339),
			))
		}
	}
	return warnings
}
