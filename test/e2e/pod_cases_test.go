// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

// corpusDir contains pods as users and operators create them in practice.
const podCasesDir = "../testdata/pods"

// podCase is a pod and the expected result in its header. The header is written by hand and
// holds even when -update rewrites the golden file.
type podCase struct {
	name    string
	pod     corev1.Pod
	project string   // project: whole, slices or both
	outcome string   // outcome: admitted or refused
	message []string // message: a text that the rejection must contain; may occur several times
	missing []string // missing: a text that must not be in the result; may occur several times
	user    string   // as: the user who creates the pod; defaultUser if not set
	dryRun  string   // dry-run: why the pod is only created in a dry run
	// Expected properties of an admitted pod, if set.
	workloadType, milli, pool, timeLimit string
}

// loadPodCases reads the cases in the order of their file names.
func loadPodCases(t *testing.T) []podCase {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(podCasesDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 26 {
		t.Fatalf("%d pods in %s, want 26 or more", len(paths), podCasesDir)
	}
	var cases []podCase
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tc, err := parsePodCase(raw)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		tc.name = strings.TrimSuffix(filepath.Base(path), ".yaml")
		cases = append(cases, tc)
	}
	return cases
}

func parsePodCase(raw []byte) (podCase, error) {
	var tc podCase
	for line := range strings.Lines(string(raw)) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if !ok {
			break
		}
		key, value, _ := strings.Cut(comment, ": ")
		switch key {
		case "project":
			tc.project = value
		case "outcome":
			tc.outcome = value
		case "message":
			tc.message = append(tc.message, value)
		case "missing":
			tc.missing = append(tc.missing, value)
		case "as":
			tc.user = value
		case "dry-run":
			tc.dryRun = value
		case "type":
			tc.workloadType = value
		case "milli":
			tc.milli = value
		case "pool":
			tc.pool = value
		case "time-limit":
			tc.timeLimit = value
		}
	}
	switch {
	case !slices.Contains([]string{"whole", "slices", "both"}, tc.project):
		return tc, fmt.Errorf("project %q: want whole, slices or both", tc.project)
	case tc.outcome == "admitted" && len(tc.message) > 0:
		return tc, errors.New("message: only a rejected pod has a message")
	case tc.outcome == "refused" && len(tc.message) == 0:
		return tc, errors.New("message: a rejected pod needs a message")
	case tc.outcome != "admitted" && tc.outcome != "refused":
		return tc, fmt.Errorf("outcome %q: want admitted or refused", tc.outcome)
	}
	if tc.pool == "" {
		tc.pool = map[string]string{"whole": "dgx", "slices": "dgx-mig"}[tc.project]
	}
	return tc, yaml.UnmarshalStrict(raw, &tc.pod)
}

// admissionResult is the result of a pod's admission.
type admissionResult struct {
	Refused  string      `json:"refused,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
	Pod      *corev1.Pod `json:"pod,omitempty"`
}

// tokenVolumePattern matches the volume that the API server adds with a random name.
var tokenVolumePattern = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

// text returns the result as YAML without the fields that differ between runs.
func (result admissionResult) text() (string, error) {
	raw, err := json.Marshal(result)
	if err != nil {
		return "", err
	}
	var content map[string]any
	if err := json.Unmarshal(raw, &content); err != nil {
		return "", err
	}
	if pod, ok := content["pod"].(map[string]any); ok {
		delete(pod, "status")
		delete(pod["spec"].(map[string]any), "nodeName")
		metadata := pod["metadata"].(map[string]any)
		for _, key := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			delete(metadata, key)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, v1alpha1.AnnotationEvaluatedUnder)
		}
	}
	raw, err = yaml.Marshal(content)
	return tokenVolumePattern.ReplaceAllString(string(raw), "kube-api-access"), err
}

// compareGolden compares the text with the golden file, or writes the file with -update.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join(podCasesDir, "golden", name+".yaml")
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no golden file %s; write it with go test ./test/e2e -run TestPodAdmissionMatchesGoldenFiles -update:\n%s", path, got)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(bytes.TrimSpace(want)), strings.TrimSpace(got)); diff != "" {
		t.Errorf("%s (-golden +cluster; -update rewrites it)\n%s", path, diff)
	}
}

// Each golden file belongs to a pod of the test data.
func TestGoldenPodsHaveSource(t *testing.T) {
	names := map[string]bool{}
	for _, tc := range loadPodCases(t) {
		names[tc.name] = true
	}
	paths, err := filepath.Glob(filepath.Join(podCasesDir, "golden", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !names[strings.TrimSuffix(filepath.Base(path), ".yaml")] {
			t.Errorf("%s belongs to no pod in %s", path, podCasesDir)
		}
	}
}
