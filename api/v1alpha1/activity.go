// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice.dev/api/period"
)

// ActivityTerms sets from which use on a pod counts as active. The webhook writes them on each pod with GPUs
// ([AnnotationActive]): the agents, which measure the use, read no departments. A change applies to pods that are
// created later.
//
// +kubebuilder:validation:XValidation:rule="!has(self.window) || [self.window.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum()].all(s, s >= 30 && s <= 3600)",fieldPath=".window",message="must be at least 30s and at most 1h"
type ActivityTerms struct {
	// Percent is the use of a pod's share of a GPU, in percent, from which on the pod counts as active:
	// from 1 to 100. Default: 5.
	//
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent,omitempty"`

	// Window is the time over which the use is averaged, from 30s to 1h. A longer window takes more
	// notice of short bursts, and less of pauses. Default: 5m.
	//
	// +optional
	// +kubebuilder:default="5m"
	Window *period.Duration `json:"window,omitempty"`
}

const (
	// DefaultActivePercent is the default of ActivityTerms.Percent.
	DefaultActivePercent int32 = 5
	// MinActiveWindow and MaxActiveWindow are the limits of ActivityTerms.Window.
	MinActiveWindow, MaxActiveWindow = 30 * time.Second, time.Hour
	// MaxActiveText is the largest length of a value of AnnotationActive: "100%/" and a [period.Duration].
	MaxActiveText = 29
)

var defaultActiveWindow = period.MustParseDuration("5m")

// WithDefaults returns the terms with the defaults of the schema.
func (t ActivityTerms) WithDefaults() ActivityTerms {
	return ActivityTerms{Percent: cmp.Or(t.Percent, DefaultActivePercent), Window: cmp.Or(t.Window, &defaultActiveWindow)}
}

// String returns the value of [AnnotationActive]: 5%/5m.
func (t ActivityTerms) String() string {
	t = t.WithDefaults()
	return fmt.Sprintf("%d%%/%s", t.Percent, t.Window)
}

// ParseActivityTerms parses a value of [AnnotationActive]. In namespaces that Sluice does not govern, users write it.
// The error names the value and what is allowed.
func ParseActivityTerms(text string) (ActivityTerms, error) {
	t, err := parseActivityTerms(text)
	if err != nil {
		return ActivityTerms{}, fmt.Errorf("activity %.40q: %w; want 1%% to 100%%, a slash and 30s to 1h, such as 5%%/5m", text, err)
	}
	return t, nil
}

func parseActivityTerms(text string) (ActivityTerms, error) {
	if len(text) > MaxActiveText {
		return ActivityTerms{}, fmt.Errorf("longer than %d characters", MaxActiveText)
	}
	percentText, windowText, found := strings.Cut(text, "%/")
	percent, err := strconv.ParseUint(percentText, 10, 8)
	if !found || err != nil || percent < 1 || percent > 100 {
		return ActivityTerms{}, errors.New("invalid percentage")
	}
	window, err := period.ParseDuration(windowText)
	if err != nil || window.Length() < MinActiveWindow || window.Length() > MaxActiveWindow {
		return ActivityTerms{}, errors.New("invalid window")
	}
	return ActivityTerms{Percent: int32(percent), Window: &window}, nil
}
