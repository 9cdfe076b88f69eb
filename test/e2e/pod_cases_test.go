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
)

// corpusDir is where the pods lie that people and operators really make.
const corpusDir = "../testdata/pods"

// podCase is one of the corpus: a pod, and what its header says is to come of
// it. The header is what a person wrote, and holds whatever -update has written
// into the golden file.
type podCase struct {
	name    string
	pod     corev1.Pod
	project string   // project: whole, slices or both
	outcome string   // outcome: admitted or refused
	message []string // says: what the refusal must say; may stand several times
	missing []string // lacks: what must not be in the outcome; may stand several times
	user    string   // as: the user who makes it; a person where nothing is said
	dryRun  string   // dry-run: why it is not made for real
	// What an admitted pod must be, where the header says it.
	workloadType, milli, pool, timeLimit string
}

// loadPodCases reads the corpus, in the order of its files' names.
func loadPodCases(t *testing.T) []podCase {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(corpusDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 26 {
		t.Fatalf("%d pods in %s, want 26 or more", len(paths), corpusDir)
	}
	var list []podCase
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parsePodCase(raw)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		s.name = strings.TrimSuffix(filepath.Base(path), ".yaml")
		list = append(list, s)
	}
	return list
}

func parsePodCase(raw []byte) (podCase, error) {
	var s podCase
	for line := range strings.Lines(string(raw)) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if !ok {
			break
		}
		key, value, _ := strings.Cut(comment, ": ")
		switch key {
		case "project":
			s.project = value
		case "outcome":
			s.outcome = value
		case "says":
			s.message = append(s.message, value)
		case "lacks":
			s.missing = append(s.missing, value)
		case "as":
			s.user = value
		case "dry-run":
			s.dryRun = value
		case "type":
			s.workloadType = value
		case "milli":
			s.milli = value
		case "pool":
			s.pool = value
		case "time-limit":
			s.timeLimit = value
		}
	}
	switch {
	case !slices.Contains([]string{"whole", "slices", "both"}, s.project):
		return s, fmt.Errorf("project %q: want whole, slices or both", s.project)
	case s.outcome == "admitted" && len(s.message) > 0:
		return s, errors.New("says: an admitted pod is told nothing")
	case s.outcome == "refused" && len(s.message) == 0:
		return s, errors.New("says: what must a refusal say?")
	case s.outcome != "admitted" && s.outcome != "refused":
		return s, fmt.Errorf("outcome %q: want admitted or refused", s.outcome)
	}
	if s.pool == "" {
		s.pool = map[string]string{"whole": "dgx", "slices": "dgx-mig"}[s.project]
	}
	return s, yaml.UnmarshalStrict(raw, &s.pod)
}

// admissionResult is what became of a pod at its admission.
type admissionResult struct {
	Refused  string      `json:"refused,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
	Pod      *corev1.Pod `json:"pod,omitempty"`
}

// tokenVolumePattern is the volume that the API server adds, with chance in its name.
var tokenVolumePattern = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

// text is the outcome as YAML, without what differs from one time to the next.
func (o admissionResult) text() (string, error) {
	raw, err := json.Marshal(o)
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
	}
	raw, err = yaml.Marshal(content)
	return tokenVolumePattern.ReplaceAllString(string(raw), "kube-api-access"), err
}

// compareGolden compares with the file that -update writes.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join(corpusDir, "golden", name+".yaml")
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is no %s; it would be (go test ./test/e2e -run PodsComeOut -update)\n%s", path, got)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(bytes.TrimSpace(want)), strings.TrimSpace(got)); diff != "" {
		t.Errorf("%s (-golden +cluster; -update writes it anew)\n%s", path, diff)
	}
}

// Every golden file is of a pod of the corpus.
func TestGoldenPodsHaveSource(t *testing.T) {
	names := map[string]bool{}
	for _, s := range loadPodCases(t) {
		names[s.name] = true
	}
	paths, err := filepath.Glob(filepath.Join(corpusDir, "golden", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !names[strings.TrimSuffix(filepath.Base(path), ".yaml")] {
			t.Errorf("%s is of no pod in %s", path, corpusDir)
		}
	}
}
