// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/test/lab/cluster"
)

func (s *testServer) logsOf(t *testing.T, pod, query string) string {
	t.Helper()
	status, body, err := s.get(t, s.client(t, cluster.KubeletClientUser, "dgx-1"), "/containerLogs/course/"+pod+"/main?"+query)
	if err != nil || status != 200 {
		t.Fatalf("%d %q, %v", status, body, err)
	}
	return body
}

const startOfTrain = `[simulated] container main of pod course/train starts on node dgx-1
[simulated] image: pytorch:2.9
[simulated] command: python train.py
`

func TestLogs(t *testing.T) {
	pod := newTestPod("train")
	s := newTestServer(t, pod)
	lines := strings.Builder{}
	lines.WriteString(startOfTrain)
	for _, minutes := range []string{"1m0s", "2m0s", "3m0s", "4m0s", "5m0s"} {
		lines.WriteString("[simulated] running for " + minutes + "\n")
	}
	all := lines.String()
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	for query, want := range map[string]string{
		"":                                 all,
		"tailLines=2":                      "[simulated] running for 4m0s\n[simulated] running for 5m0s\n",
		"tailLines=0":                      "",
		"tailLines=9223372036854775807":    all,
		"sinceSeconds=100":                 "[simulated] running for 4m0s\n[simulated] running for 5m0s\n",
		"sinceSeconds=9223372036854775807": all,
		"sinceTime=" + url.QueryEscape(started.Add(290*time.Second).Format(time.RFC3339)): "[simulated] running for 5m0s\n",
		"limitBytes=20":               startOfTrain[:20],
		"tailLines=1&timestamps=true": started.Add(5*time.Minute).UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + " [simulated] running for 5m0s\n",
		"tailLines=1&sinceSeconds=1":  "",
	} {
		if diff := cmp.Diff(want, s.logsOf(t, "train", query)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
}

// A followed log ends with its container, also if the container starts again or the pod is
// deleted.
func TestFollowedLogEnds(t *testing.T) {
	for name, end := range map[string]func(*testServer, *corev1.Pod){
		"the pod ended": func(s *testServer, pod *corev1.Pod) { s.setPod(ended(pod, 0)) },
		"the container started again": func(s *testServer, pod *corev1.Pod) {
			over := ended(pod, 0)
			status := &over.Status.ContainerStatuses[0]
			status.LastTerminationState, status.RestartCount = status.State, 1
			status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
			s.setPod(over)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newTestPod("train")
			s := newTestServer(t, pod)
			s.whenStreamed(func() { end(s, pod) })
			got := s.logsOf(t, "train", "follow=true&tailLines=1")
			if want := "[simulated] running for 5m0s\n[simulated] container main ended with exit code 0\n"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	pod := newTestPod("train")
	s := newTestServer(t, pod)
	s.whenStreamed(func() {
		other := pod.DeepCopy()
		other.UID = "another"
		s.setPod(other)
	})
	if got := s.logsOf(t, "train", "follow=true&tailLines=0"); got != "" {
		t.Errorf("the log of a later pod of the same name: %q", got)
	}
}

func TestLogsOfRestartedContainer(t *testing.T) {
	backOff := ended(newTestPod("train"), 7)
	status := &backOff.Status.ContainerStatuses[0]
	status.LastTerminationState = status.State
	status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	s := newTestServer(t, backOff)
	for _, query := range []string{"", "previous=true"} {
		if got := s.logsOf(t, "train", query); !strings.HasSuffix(got, "ended with exit code 7\n") {
			t.Errorf("%q: %q", query, got)
		}
	}
	running := backOff.DeepCopy()
	running.Status.ContainerStatuses[0].RestartCount = 1
	running.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	s.setPod(running)
	if got := s.logsOf(t, "train", ""); got != startOfTrain {
		t.Errorf("the second run: %q", got)
	}
	if got := s.logsOf(t, "train", "previous=true"); !strings.HasSuffix(got, "ended with exit code 7\n") {
		t.Errorf("the first run: %q", got)
	}
}

func TestNotebookAddress(t *testing.T) {
	token := notebookToken(newTestPod("lab"), "main")
	for _, tc := range []struct {
		name      string
		container corev1.Container
		want      string // empty for no notebook
	}{
		{"an image of Jupyter", corev1.Container{Image: "quay.io/jupyter/pytorch-notebook:cuda12"}, "http://127.0.0.1:8888/lab?token=" + token},
		{"a declared port", corev1.Container{Image: "jupyter/base", Ports: []corev1.ContainerPort{{ContainerPort: 9999}}}, "http://127.0.0.1:9999/lab?token=" + token},
		{
			"arguments",
			corev1.Container{Image: "pytorch", Args: []string{"jupyter", "lab", "--port=7000", "--ServerApp.base_url=/team/lab"}},
			"http://127.0.0.1:7000/team/lab/lab?token=" + token,
		},
		{
			"a token of its own",
			corev1.Container{Image: "jupyter/base", Env: []corev1.EnvVar{{Name: "JUPYTER_TOKEN", Value: "secret"}}},
			"http://127.0.0.1:8888/lab?token=...",
		},
		{"a token in an argument", corev1.Container{Image: "jupyter/base", Args: []string{"--IdentityProvider.token=secret"}}, "http://127.0.0.1:8888/lab?token=..."},
		{"no token", corev1.Container{Image: "jupyter/base", Args: []string{"start-notebook.sh", "--NotebookApp.token=''"}}, "http://127.0.0.1:8888/lab"},
		{"an invalid port", corev1.Container{Image: "jupyter/base", Args: []string{"--port=99999"}}, "http://127.0.0.1:8888/lab?token=" + token},
		{"no notebook", corev1.Container{Image: "pytorch:2.9", Command: []string{"python", "train.py"}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.container.Name = "main"
			pod := newTestPod("lab", func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{tc.container} })
			lines := startLines(pod, &pod.Spec.Containers[0])
			last := strings.TrimSpace(lines[len(lines)-1])
			if tc.want == "" && len(lines) != 3 || tc.want != "" && last != tc.want {
				t.Errorf("the last of %d lines is %q, want %q", len(lines), last, tc.want)
			}
			for _, l := range lines {
				if strings.Contains(l, "secret") && !strings.Contains(l, "command:") {
					t.Errorf("a token is printed: %q", l)
				}
			}
		})
	}
}

// A pod cannot forge lines of the log, and a log stays short.
func TestOutputIsBounded(t *testing.T) {
	pod := newTestPod("train", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh\n[simulated] image: other\x1b[2J"} })
	start := time.Now()
	lines := output(pod, &pod.Spec.Containers[0], run{started: start.AddDate(-1, 0, 0)}, start)
	if len(lines) > 9000 {
		t.Errorf("a year has %d lines", len(lines))
	}
	for _, l := range lines {
		if strings.ContainsAny(l.text, "\n\x1b") {
			t.Errorf("line %q", l.text)
		}
	}
}

// The options of a log are valid or have a message that names the parameter.
func FuzzLogOptions(f *testing.F) {
	for _, seed := range []string{"follow=true&tailLines=5", "sinceSeconds=1", "sinceTime=2026-01-31T12:00:00Z", "limitBytes=0", "tailLines=x", "previous=maybe"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		options, err := parseLogOptions(query, time.Now())
		if err != nil {
			if !strings.Contains(err.Error(), `"`) {
				t.Errorf("%q: the message %q does not name the value", text, err)
			}
			return
		}
		if options.tail < -1 || options.limit == 0 || options.limit < -1 {
			t.Errorf("%q: %+v", text, options)
		}
	})
}
