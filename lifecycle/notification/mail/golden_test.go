// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/api/v1alpha1"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files")

// TestComposeGoldenFiles compares each mail byte for byte, and fails for unused files.
func TestComposeGoldenFiles(t *testing.T) {
	used := map[string]bool{}
	for _, l := range Examples() {
		m := mustCompose(t, l)
		for end, got := range map[string]string{"eml": string(m.Bytes), "txt": m.Text, "html": m.HTML} {
			path := filepath.Join("testdata", "golden", l.Notice.Name+"."+end)
			used[path] = true
			compareGolden(t, path, got)
		}
	}
	files, err := filepath.Glob("testdata/golden/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !used[file] {
			t.Errorf("%s: no example uses it", file)
		}
	}
}

// compareGolden compares a text with a golden file, or rewrites the file.
func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got; -update rewrites it)\n%s", path, diff)
	}
}

// TestExamplesCoverEveryKind: each kind has an example in both languages.
func TestExamplesCoverEveryKind(t *testing.T) {
	want := map[contentKey]bool{}
	for _, kind := range []v1alpha1.NoticeKind{
		v1alpha1.NoticeProjectExpiring, v1alpha1.NoticeProjectExpired, v1alpha1.NoticeProjectSuspending, v1alpha1.NoticeProjectSuspended,
		v1alpha1.NoticeProjectDeletion, v1alpha1.NoticeProjectConfirm, v1alpha1.NoticeProjectRenewed, v1alpha1.NoticeProjectDeleted,
		v1alpha1.NoticeWorkloadEnding, v1alpha1.NoticeWorkloadIdle, v1alpha1.NoticeWorkloadStopped,
		v1alpha1.NoticeWorkloadUnstoppable, v1alpha1.NoticeShareExceeded,
		v1alpha1.NoticePreemption,
		v1alpha1.NoticeExtensionRequested, v1alpha1.NoticeExtensionDecided, v1alpha1.NoticeQuotaThreshold, v1alpha1.NoticeWeeklySummary,
		v1alpha1.NoticeDigest, v1alpha1.NoticeTest,
	} {
		want[contentKey{kind, v1alpha1.LanguageGerman}], want[contentKey{kind, v1alpha1.LanguageEnglish}] = true, true
	}
	written, shown := map[contentKey]bool{}, map[contentKey]bool{}
	for k := range noticeContents() {
		written[k] = true
	}
	for _, l := range Examples() {
		shown[contentKey{l.Notice.Spec.Kind, languageOf(l.Notice)}] = true
	}
	compare := []cmp.Option{cmp.AllowUnexported(contentKey{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(want, written, compare...); diff != "" {
		t.Errorf("texts (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want, shown, compare...); diff != "" {
		t.Errorf("examples (-want +got)\n%s", diff)
	}
}

func mustCompose(t *testing.T, l ComposeRequest) *Message {
	t.Helper()
	m, err := Compose(l)
	if err != nil {
		t.Fatalf("%s: %v", l.Notice.Name, err)
	}
	return m
}

// relativeLuminance returns the relative luminance (WCAG) of a color #rrggbb.
func relativeLuminance(t *testing.T, color string) float64 {
	t.Helper()
	var c [3]int
	if _, err := fmt.Sscanf(color, "#%02x%02x%02x", &c[0], &c[1], &c[2]); err != nil {
		t.Fatalf("%s: %v", color, err)
	}
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v := float64(c[i]) / 255
		if v <= 0.03928 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}

// TestColorContrast: all text has a contrast of at least 4.5 to 1, light and dark.
func TestColorContrast(t *testing.T) {
	raw, err := texts.ReadFile("texts/layout.html.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range []struct{ what, ink, ground string }{
		{"text", "#1a2230", "#ffffff"},
		{"small print", "#5a6675", "#ffffff"},
		{"accent", "#0b5cad", "#ffffff"},
		{"deadline", "#1a2230", "#eaf2fb"},
		{"its label", "#5a6675", "#eaf2fb"},
		{"how long", "#0b5cad", "#eaf2fb"},
		{"command", "#1a2230", "#f3f5f8"},
		{"dark text", "#e8ebf0", "#1d2229"},
		{"dark small print", "#aab4c2", "#1d2229"},
		{"dark accent", "#7db8f5", "#1d2229"},
		{"dark deadline", "#e8ebf0", "#16283d"},
		{"its dark label", "#aab4c2", "#16283d"},
		{"dark how long", "#7db8f5", "#16283d"},
		{"dark command", "#e8ebf0", "#12151a"},
	} {
		for _, color := range []string{pair.ink, pair.ground} {
			if !strings.Contains(string(raw), color) {
				t.Errorf("%s: the layout has no %s any more", pair.what, color)
			}
		}
		a, b := relativeLuminance(t, pair.ink), relativeLuminance(t, pair.ground)
		if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
			t.Errorf("%s: %s on %s has a contrast of %.1f", pair.what, pair.ink, pair.ground, ratio)
		}
	}
}
