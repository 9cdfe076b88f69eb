// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// run is one run of a container, from a start to an end.
type run struct {
	uid     types.UID // of the pod
	number  int32     // 0 for the first
	started time.Time
	// ended is zero while the container runs.
	ended    time.Time
	exitCode int32
}

// line is one line of a container's output.
type line struct {
	at   time.Time
	text string
}

// output returns what a container has written in a run until now, oldest first. It is
// computed from the pod alone, so that it is the same at each call.
func output(pod *corev1.Pod, container *corev1.Container, r run, now time.Time) []line {
	var lines []line
	for i, text := range startLines(pod, container) {
		lines = append(lines, line{r.started.Add(time.Duration(i) * time.Millisecond), text})
	}
	until := now
	if !r.ended.IsZero() {
		until = r.ended
	}
	for elapsed := nextProgress(0); !r.started.Add(elapsed).After(until); elapsed = nextProgress(elapsed) {
		lines = append(lines, line{r.started.Add(elapsed), "[simulated] running for " + elapsed.String()})
	}
	if !r.ended.IsZero() {
		// Times of a status are in whole seconds.
		last := r.ended
		if n := len(lines); n > 0 && last.Before(lines[n-1].at) {
			last = lines[n-1].at
		}
		lines = append(lines, line{last, fmt.Sprintf("[simulated] container %s ended with exit code %d", container.Name, r.exitCode)})
	}
	return lines
}

// nextProgress returns when a running container reports next: each minute of the first
// hour, and then each hour, so that no log is long.
func nextProgress(elapsed time.Duration) time.Duration {
	if elapsed < time.Hour {
		return elapsed + time.Minute
	}
	return elapsed + time.Hour
}

// startLines returns what a container writes when it starts. Values of variables are not
// among them.
func startLines(pod *corev1.Pod, container *corev1.Container) []string {
	command := strings.Join(slices.Concat(container.Command, container.Args), " ")
	if command == "" {
		command = "that of the image"
	}
	lines := []string{
		fmt.Sprintf("[simulated] container %s of pod %s/%s starts on node %s", container.Name, pod.Namespace, pod.Name, pod.Spec.NodeName),
		"[simulated] image: " + container.Image,
		"[simulated] command: " + oneLine(command),
	}
	if port, isNotebook := notebookPort(container); isNotebook {
		lines = append(lines, notebookLines(pod, container, port)...)
	}
	return lines
}

// oneLine replaces line ends and other control characters, which would forge lines.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

const defaultNotebookPort = 8888

// The arguments of Jupyter that change the address it prints.
var (
	portArgument  = regexp.MustCompile(`--(?:(?:ServerApp|NotebookApp)\.)?port[= ](\d{1,5})\b`)
	baseArgument  = regexp.MustCompile(`--(?:ServerApp|NotebookApp)\.base_url[= ](\S+)`)
	tokenArgument = regexp.MustCompile(`--(?:ServerApp|NotebookApp|IdentityProvider)\.token[= ](\S*)`)
)

// notebookPort returns the port on which a Jupyter server listens, and whether the container
// is one, by its image or its command.
func notebookPort(container *corev1.Container) (port int32, isNotebook bool) {
	command := strings.Join(slices.Concat(container.Command, container.Args), " ")
	image := strings.ToLower(container.Image)
	if !strings.Contains(image, "jupyter") && !strings.Contains(path.Base(image), "notebook") && !strings.Contains(command, "jupyter") {
		return 0, false
	}
	if found := portArgument.FindStringSubmatch(command); found != nil {
		if n, err := strconv.ParseInt(found[1], 10, 32); err == nil && n > 0 && n <= 65535 {
			return int32(n), true
		}
	}
	if len(container.Ports) == 1 {
		return container.Ports[0].ContainerPort, true
	}
	return defaultNotebookPort, true
}

// notebookLines returns what a Jupyter server prints when it starts, with its address. As the
// real one it prints a token that it has made up, and "..." for one that it was given.
func notebookLines(pod *corev1.Pod, container *corev1.Container, port int32) []string {
	command := strings.Join(slices.Concat(container.Command, container.Args), " ")
	base := "/"
	if found := baseArgument.FindStringSubmatch(command); found != nil {
		base = path.Clean("/"+oneLine(strings.Trim(found[1], `"'`))) + "/"
		base = strings.ReplaceAll(base, "//", "/")
	}
	query := "?token=" + notebookToken(pod, container.Name)
	given := slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == "JUPYTER_TOKEN" })
	if found := tokenArgument.FindStringSubmatch(command); found != nil {
		given = true
		if strings.Trim(found[1], `"'`) == "" {
			query, given = "", false
		}
	}
	if given {
		query = "?token=..."
	}
	host := pod.Spec.Hostname
	if host == "" {
		host = pod.Name
	}
	remote := fmt.Sprintf("http://%s:%d%slab%s", host, port, base, query)
	local := fmt.Sprintf("http://127.0.0.1:%d%slab%s", port, base, query)
	return []string{
		"[I ServerApp] Jupyter Server (simulated) is running at:",
		"[I ServerApp] " + remote,
		"[I ServerApp]     " + local,
		"[I ServerApp] Use Control-C to stop this server and shut down all kernels (twice to skip confirmation).",
		"",
		"    To access the server, copy and paste one of these URLs:",
		"        " + remote,
		"        " + local,
	}
}

// notebookToken returns the token of a notebook, which stays the same while the pod exists.
// It protects nothing: a forwarded port answers without it.
func notebookToken(pod *corev1.Pod, container string) string {
	sum := sha256.Sum256([]byte("notebook/" + string(pod.UID) + "/" + container))
	return hex.EncodeToString(sum[:24])
}
