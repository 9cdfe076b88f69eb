// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The policies of the sample university admit each sample of workloads in its project without a warning. The golden files show
// what becomes of the samples that cannot run in the embedded cluster as they are: there is no operator for PyTorchJobs, no S3,
// no Git and no Ingress controller. TestWorkloadSamplesRun in test/e2e runs all but the PyTorchJob.
func TestWorkloadSamples(t *testing.T) {
	const samples = "../../../manifests/samples/workloads/"
	goldens := map[string]bool{"pytorch-ddp": true, "data-from-s3-and-git": true, "notebook": true}
	policies := t.TempDir()
	copyFiles(t, policies, "../../../manifests/samples/university/*.yaml")
	files, err := filepath.Glob(samples + "*.yaml")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d samples: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			evaluated := 0
			for document := range strings.SplitSeq(string(raw), "\n---\n") {
				object := &unstructured.Unstructured{}
				if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
					t.Fatal(err)
				}
				if _, found, _ := unstructured.NestedMap(object.Object, "spec", "template"); !found && object.GetKind() != "PyTorchJob" {
					continue
				}
				evaluated++
				workload := filepath.Join(t.TempDir(), "workload.yaml")
				if err := os.WriteFile(workload, []byte(document), 0o600); err != nil {
					t.Fatal(err)
				}
				got, err := runCommand(t, "policy", "eval", "--policies", policies, "--project", object.GetNamespace(), "-f", workload)
				if err != nil || strings.Contains(got, "Warning:") || !strings.Contains(got, "+") {
					t.Fatalf("%v: %s", err, got)
				}
				if diff, _, _ := strings.Cut(got, "\n\nPOLICY"); goldens[name] {
					golden.Assert(t, diff+"\n", "sample_"+name+".txt")
				}
			}
			if evaluated != 1 {
				t.Errorf("%d workloads in %s", evaluated, file)
			}
		})
	}
}

// copyFiles copies the files of a pattern into a directory.
func copyFiles(t *testing.T, directory, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, filepath.Base(file)), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
