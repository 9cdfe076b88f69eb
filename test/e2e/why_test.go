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

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"

	"sluice.dev/test/clustertest"
)

// A researcher with her own token learns from whoami what she may use, and from why what became of
// her work. Her role is l2-researcher: she may not list Projects, Policies or NodePools.
func TestWhyAndWhoami(t *testing.T) {
	t.Parallel()
	const department, project, account = "explained", "explained-thesis", "anna"
	create(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: department},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx-mig", "1", "1")},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: ptr.To(period.MustParseDuration("48h"))}},
			Notices:   v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin", WorkloadEnd: []period.Duration{period.MustParseDuration("5s")}},
		},
	})
	sharedCluster.createGovernedProject(t, department, project, newPoolQuota("dgx-mig", "1", "1"))
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: account}})
	updateProjectWithRetry(t, project, func(p *v1alpha1.Project) {
		p.Spec.Members = []v1alpha1.Member{{Kind: v1alpha1.MemberServiceAccount, Namespace: project, Name: account, Role: v1alpha1.RoleL2Researcher}}
	})
	kubeconfig := sharedCluster.accountKubeconfig(t, project, account)
	sluice := func(arguments ...string) (string, error) {
		command := exec.CommandContext(t.Context(), sharedCluster.binary, append(arguments, "--kubeconfig", kubeconfig)...)
		out, err := command.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("sluice %s: %w: %s", strings.Join(arguments, " "), err, out)
		}
		return string(out), err
	}
	user := clientOfKubeconfig(t, kubeconfig)

	var known struct {
		User     string `json:"user"`
		Projects []struct {
			Name  string `json:"name"`
			Roles []struct {
				Role string `json:"role"`
			} `json:"roles"`
			TimeLimits map[string]v1alpha1.EffectiveTimeLimits `json:"timeLimits"`
			NodePools  []struct {
				Name   string   `json:"name"`
				Slices []string `json:"slices"`
			} `json:"nodePools"`
		} `json:"projects"`
	}
	eventuallyLong(t, func() error {
		out, err := sluice("whoami", "-o", "json")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(out), &known); err != nil {
			return err
		}
		if len(known.Projects) != 1 || len(known.Projects[0].NodePools) != 1 || len(known.Projects[0].NodePools[0].Slices) == 0 ||
			known.Projects[0].TimeLimits["train"].MaxRuntimeSeconds != 48*3600 {
			return unexpectedState("one project with a limit of 48 hours for training, a node pool and its slices", out)
		}
		return nil
	})
	if p := known.Projects[0]; known.User != "system:serviceaccount:"+project+":"+account || p.Name != project || len(p.Roles) != 1 || p.Roles[0].Role != "l2-researcher" {
		t.Errorf("whoami says %+v", known)
	}
	if err := user.List(t.Context(), &v1alpha1.ProjectList{}); err == nil {
		t.Error("a member may list Projects")
	}

	expectAnswer := func(name string, want ...string) {
		t.Helper()
		out := ""
		eventuallyLong(t, func() (err error) {
			if out, err = sluice("why", name, "-p", project); err != nil {
				return err
			}
			for _, text := range want {
				if !strings.Contains(out, text) {
					return unexpectedState(text, out)
				}
			}
			return nil
		})
		t.Logf("$ sluice why %s -p %s\n%s", name, project, out)
		if strings.Contains(out, "Not read") {
			t.Errorf("an l2-researcher may not read all that the answer needs:\n%s", out)
		}
	}
	createJob := func(name string, change func(*corev1.PodTemplateSpec)) {
		t.Helper()
		template := halfGPUTemplate(name)
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		template.Spec.Containers[0].Args = []string{name} // the same program would continue the clock of a stopped one
		change(&template)
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: name}, Spec: batchv1.JobSpec{Template: template}}
		if err := user.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}

	expectAnswer("trainnig", ": Missing", "Nothing with this name exists")

	createJob("stopped", func(template *corev1.PodTemplateSpec) { template.Annotations[v1alpha1.AnnotationMaxRuntime] = "50s" })
	// Only the last quarter of its time is Ending, which a loaded machine can miss.
	expectAnswer("stopped", "Job/stopped in namespace "+project, "Sluice will stop it at", "because it will have run for 50s", "sluice extend job/stopped -n "+project)
	expectAnswer("job/stopped", ": Stopped", "because it had run for 50s, its time limit", "It can be started again at")

	createJob("refused", func(template *corev1.PodTemplateSpec) {
		template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
	})
	expectAnswer("refused", ": Refused", "Pod Security", "hostPort", "sluice delete job/refused -n "+project)

	eventuallyLong(t, func() error { // the pod of the stopped Job holds its quota until it has ended
		if pods := sharedCluster.listPods(t, project); len(pods) > 0 {
			return unexpectedState("no pod exists", pods[0].Name)
		}
		return nil
	})
	createQuotaHolder(t, project, "holder-1")
	createQuotaHolder(t, project, "holder-2")
	expectAnswer("holder-1", "Pod/holder-1", ": Running", "because it will have run for 48h, its time limit")
	createJob("waiting", func(*corev1.PodTemplateSpec) {})
	expectAnswer("waiting", ": Waiting", "It waits for GPU quota: each pod needs 0.5 of a GPU of node pool dgx-mig",
		"project "+project+" uses 1 GPU of its limit of 1 GPU", "GPUs are held by", "sluice whoami")

	out, err := sluice("project", "list")
	if err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, project) {
		t.Errorf("project list: %v\n%s", err, out)
	}
	out, err = sluice("whoami")
	if err != nil || !strings.Contains(out, "l2-researcher (project)") {
		t.Errorf("whoami: %v\n%s", err, out)
	}
	t.Logf("$ sluice whoami\n%s", out)
	expectImagesOfRegistries(t, project, sluice)
}

// expectImagesOfRegistries expects that whoami shows the images that a policy tells, and that the command that whoami names shows whether
// an image is allowed, as docs/researcher/why.md has it.
func expectImagesOfRegistries(t *testing.T, project string, sluice func(...string) (string, error)) {
	t.Helper()
	create(t, &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "thesis-registries"}, Spec: v1alpha1.PolicySpec{
		Match: v1alpha1.PolicyMatch{Projects: []string{project}},
		Rego: "package thesis_registries\ndeny contains {\"msg\": sprintf(\"image %s is of no allowed registry\", [c.image]), " +
			"\"fix\": \"use an image of registry.example.org\"} if {\n" +
			"\tsome c in input.object.spec.containers\n\tnot startswith(c.image, \"registry.example.org/\")\n}\n" +
			"objects contains {\"apiVersion\": \"sluice.dev/v1alpha1\", \"kind\": \"ProjectParameters\", " +
			"\"metadata\": {\"name\": \"thesis-registries\"}, \"spec\": {\"images\": [\"registry.example.org\"]}} if input.object.kind == \"Project\"\n",
	}})
	const want = "sluice: job/try is refused: image docker.io/library/busybox is of no allowed registry; use an image of registry.example.org (policy thesis-registries)"
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "researcher", "why.md"))
	if err != nil || !strings.Contains(string(page), want) {
		t.Errorf("docs/researcher/why.md lacks %q: %v", want, err)
	}
	eventuallyLong(t, func() error {
		out, err := sluice("submit", "try", "-i", "docker.io/library/busybox", "--dry-run=server", "-p", project)
		if err == nil || !strings.Contains(err.Error(), want) {
			return unexpectedState(want, fmt.Sprint(out, err))
		}
		return nil
	})
	eventuallyLong(t, func() error {
		out, err := sluice("whoami")
		if want := "Images in " + project + ": registry.example.org (thesis-registries)\n"; err != nil || !strings.Contains(out, want) {
			return unexpectedState(want, fmt.Sprint(out, err))
		}
		return nil
	})
	if out, err := sluice("submit", "try", "-i", "registry.example.org/busybox", "--dry-run=server", "-p", project); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// clientOfKubeconfig returns a client with the rights of a kubeconfig.
func clientOfKubeconfig(t *testing.T, path string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: sharedCluster.adminClient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
