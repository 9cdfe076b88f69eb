// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	_ "time/tzdata" // the tests must not depend on the machine's zones

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden compares every mail, byte for byte, and leaves no file that none makes.
func TestGolden(t *testing.T) {
	made := map[string]bool{}
	for _, l := range Examples() {
		m := compose(t, l)
		for end, got := range map[string]string{"eml": string(m.Bytes), "txt": m.Text, "html": m.HTML} {
			path := filepath.Join("testdata", "golden", l.Notice.Name+"."+end)
			made[path] = true
			if *update {
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
				t.Errorf("%s differs (-want +got; -update writes it anew)\n%s", path, diff)
			}
		}
	}
	files, err := filepath.Glob("testdata/golden/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !made[file] {
			t.Errorf("%s: no example makes it any more", file)
		}
	}
}

// TestEveryKind sees an example of every kind in both languages.
func TestEveryKind(t *testing.T) {
	want := map[contentKey]bool{}
	for _, kind := range []v1alpha1.NoticeKind{
		v1alpha1.NoticeProjectExpiring, v1alpha1.NoticeProjectExpired, v1alpha1.NoticeProjectSuspending, v1alpha1.NoticeProjectSuspended,
		v1alpha1.NoticeProjectDeletion, v1alpha1.NoticeProjectConfirm, v1alpha1.NoticeProjectRenewed, v1alpha1.NoticeProjectDeleted,
		v1alpha1.NoticeWorkloadEnding, v1alpha1.NoticeWorkloadIdle, v1alpha1.NoticeWorkloadStopped, v1alpha1.NoticeOverShare, v1alpha1.NoticePreemption,
		v1alpha1.NoticeExtensionRequested, v1alpha1.NoticeExtensionDecided, v1alpha1.NoticeQuotaThreshold, v1alpha1.NoticeWeeklySummary, v1alpha1.NoticeDigest, v1alpha1.NoticeTest,
	} {
		want[contentKey{kind, v1alpha1.LanguageGerman}], want[contentKey{kind, v1alpha1.LanguageEnglish}] = true, true
	}
	written, shown := map[contentKey]bool{}, map[contentKey]bool{}
	for k := range contents() {
		written[k] = true
	}
	for _, l := range Examples() {
		shown[contentKey{l.Notice.Spec.Kind, language(l.Notice)}] = true
	}
	compare := []cmp.Option{cmp.AllowUnexported(contentKey{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(want, written, compare...); diff != "" {
		t.Errorf("texts (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want, shown, compare...); diff != "" {
		t.Errorf("examples (-want +got)\n%s", diff)
	}
}

func compose(t *testing.T, l Letter) *Mail {
	t.Helper()
	m, err := Compose(l)
	if err != nil {
		t.Fatalf("%s: %v", l.Notice.Name, err)
	}
	return m
}
