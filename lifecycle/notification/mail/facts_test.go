// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

// TestRenderFacts distinguishes a limit in minutes from thousandths of a GPU.
func TestRenderFacts(t *testing.T) {
	for name, test := range map[string]struct {
		kind     v1alpha1.NoticeKind
		language v1alpha1.Language
		inputs   map[string]string
		want     []Fact
	}{
		"a limit of 90 minutes": {
			v1alpha1.NoticeWorkloadStopped, v1alpha1.LanguageEnglish,
			map[string]string{InputLimit: "90m", InputGPUs: "500m", InputAccumulatedSeconds: "5399"},
			[]Fact{
				{Label: "Time limit", Padded: "Time limit:     ", Value: "1 hour 30 minutes"},
				{Label: "Run time so far", Padded: "Run time so far:", Value: "1 hour 29 minutes"},
				{Label: "GPUs", Padded: "GPUs:           ", Value: "0.5"},
			},
		},
		"a limit of half a GPU": {
			v1alpha1.NoticeQuotaThreshold, v1alpha1.LanguageGerman,
			map[string]string{InputLimit: "500m", InputAllocated: "450m", InputNodePool: "dgx"},
			[]Fact{
				{Label: "Knotengruppe", Padded: "Knotengruppe:", Value: "dgx"},
				{Label: "GPUs belegt", Padded: "GPUs belegt: ", Value: "0,45 / 0,5"},
			},
		},
		"an invalid number": {
			v1alpha1.NoticeShareExceeded, v1alpha1.LanguageEnglish,
			map[string]string{InputMemoryMiB: "much", InputShareMiB: "1536", InputLimit: "long", InputAccumulatedSeconds: "-1"},
			[]Fact{
				{Label: "GPU memory in use", Padded: "GPU memory in use: ", Value: "much"},
				{Label: "GPU memory allowed", Padded: "GPU memory allowed:", Value: "1.5 GiB"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := &v1alpha1.Notice{Spec: v1alpha1.NoticeSpec{Kind: test.kind, Inputs: test.inputs}}
			n.Spec.Recipient.Language = test.language
			p := newTemplateData(n, newTimeFormatter(n))
			if diff := cmp.Diff(test.want, renderFacts(p)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
