// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
)

const commandsObjects = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: notebook, labels: {app.kubernetes.io/instance: notebook, app.kubernetes.io/managed-by: sluice-submit}}
spec:
  selector: {matchLabels: {app: notebook}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: notebook, sluice.dev/workload-type: interactive}, annotations: {gpu-fraction: "0.5"}}
    spec:
      containers:
      - {name: jupyter, image: "quay.io/jupyter/base-notebook:2026-01", ports: [{containerPort: 8888}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: training}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: "nvcr.io/nvidia/pytorch:26.01-py3", resources: {limits: {nvidia.com/gpu: "1"}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: large}
spec:
  parallelism: 4
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: "nvcr.io/nvidia/pytorch:26.01-py3", resources: {limits: {nvidia.com/gpu: "1"}}}
`

// A user with no right but the role l2-researcher, who may list neither projects nor nodes, lists, stops, starts,
// copies and deletes her own workloads, and not those of another one.
func TestWorkloadCommandsOfL2Researcher(t *testing.T) {
	t.Parallel()
	s := sharedCluster
	const project, anna, ben = "commands-lab", "anna-of-commands", "ben-of-commands"
	s.createDepartment(t, "commands", newPoolQuota("dgx-mig", "2", "3"))
	s.createGovernedProject(t, "commands", project, newPoolQuota("dgx-mig", "1", "2"))
	updateProjectWithRetry(t, project, func(p *v1alpha1.Project) {
		p.Spec.Members = []v1alpha1.Member{newMember(anna, v1alpha1.RoleL2Researcher), newMember(ben, v1alpha1.RoleL2Researcher)}
	})
	for _, user := range []string{anna, ben} {
		waitForAccess(t, user, "list pods in "+project, true)
		waitForAccess(t, user, "create jobs.batch in "+project, true)
	}
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(commandsObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	s.mustKubectl(t, "create", "-n", project, "--as", anna, "-f", path)
	s.mustKubectl(t, "create", "service", "clusterip", "notebook", "--tcp=80:8888", "-n", project)
	run := func(user string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), s.binary, append(args, "--dir", s.dir, "--as", user)...).CombinedOutput()
		return string(out), err
	}
	sluice := func(args ...string) string {
		t.Helper()
		out, err := run(anna, append(args, "-p", project)...)
		if err != nil {
			t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	type row struct{ Name, Status, Reason, Type, Project, CreatedBy, GPUs string }
	rows := func() map[string]row {
		var listed struct{ Workloads []row }
		out := sluice("list", "-o", "json")
		if err := json.Unmarshal([]byte(out), &listed); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		found := map[string]row{}
		for _, r := range listed.Workloads {
			found[r.Name] = r
		}
		return found
	}
	eventually(t, func() error {
		found := rows()
		notebook, training, large := found["notebook"], found["training"], found["large"]
		if notebook.Status != "Running" || notebook.Type != "interactive" || notebook.CreatedBy != anna || notebook.Project != project {
			return fmt.Errorf("the notebook is %+v", notebook)
		}
		if training.GPUs == "" || large.GPUs == "" || training.Status == "Pending" && training.Reason == "" {
			return fmt.Errorf("training is %+v, large %+v", training, large)
		}
		return nil
	})
	t.Log("\n" + sluice("list") + "\n" + sluice("list", "-o", "wide") + "\n" + sluice("get", "notebook") + "\n" + sluice("get", "job/large"))

	if out, err := run(ben, "stop", "training", "-p", project); err == nil || !strings.Contains(out, "training") {
		t.Errorf("another researcher stopped the Job: %s", out)
	} else {
		t.Log(out)
	}
	if reason := rows()["large"].Reason; reason != "the GPU quota in node pool dgx-mig has no room for 1 GPU" {
		t.Errorf("large waits because %s", reason)
	}
	if out, err := run(anna, "list", "-A"); err == nil || !strings.Contains(out, "name a namespace with -n, or one of your projects with -p") {
		t.Errorf("she listed all namespaces: %s", out)
	}
	if out, err := run(anna, "project", "list"); err != nil || !strings.Contains(out, project) || strings.Count(out, "\n") != 2 {
		t.Errorf("she lists more or less than her project: %v\n%s", err, out)
	} else {
		t.Log("\n" + out)
	}
	t.Log(sluice("stop", "notebook", "large"))
	eventually(t, func() error {
		if found := rows(); found["notebook"].Status != "Stopped" || found["large"].Status != "Stopped" {
			return fmt.Errorf("stopped are %+v", found)
		}
		return nil
	})
	t.Log(sluice("start", "notebook"))
	t.Log(sluice("clone", "notebook", "notebook-2"))
	eventually(t, func() error {
		if found := rows(); found["notebook"].Status != "Running" || found["notebook-2"].CreatedBy != anna {
			return fmt.Errorf("after start and clone: %+v", found)
		}
		return nil
	})
	t.Log("\n" + sluice("list", "--mine"))
	t.Log(sluice("delete", "notebook", "notebook-2", "training", "large"))
	eventually(t, func() error {
		if found := rows(); len(found) > 0 {
			return fmt.Errorf("still there: %+v", found)
		}
		return nil
	})
	// A copy of the kubeconfig, since the other tests use the file.
	raw, err := os.ReadFile(filepath.Join(s.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), s.binary, "project", "set", project, "--as", anna, "--kubeconfig", kubeconfig)
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "now has namespace "+project) {
		t.Errorf("project set: %v\n%s", err, out)
	} else {
		t.Log(string(out))
	}
	namespace := s.mustKubectl(t, "config", "view", "--kubeconfig", kubeconfig, "--minify", "-o", "jsonpath={..namespace}")
	if namespace != project {
		t.Errorf("the context has namespace %q", namespace)
	}
}
