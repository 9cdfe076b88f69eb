// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Prepare rewrites the arguments of a command line so that a parser of flags understands both notations of
// Run:ai: in "--command sleep" the flag has a value, in "--command -- ./startup.sh --fast" the command follows
// the two dashes. The second becomes "--command= -- ./startup.sh --fast".
func Prepare(arguments []string) []string {
	at := slices.Index(arguments, "--")
	if at < 1 || arguments[at-1] != "--command" {
		return arguments
	}
	prepared := slices.Clone(arguments)
	prepared[at-1] = "--command="
	return prepared
}

// SetCommand sets the command from the values of --command and --args and from what follows the two dashes.
// Without --command, what follows are arguments of the image's entry point.
func (r *Request) SetCommand(hasCommand bool, command string, arguments, rest []string) error {
	switch {
	case !hasCommand:
		r.Arguments = slices.Concat(arguments, rest)
	case command == "" && len(rest) == 0:
		return fmt.Errorf("--command: give a command, such as --command sleep --args infinity or --command -- sleep infinity")
	case command == "":
		r.Command, r.Arguments = rest, arguments
	case len(rest) > 0:
		return fmt.Errorf("--command %q: what follows -- is a second command; use --args for its arguments", command)
	default:
		r.Command, r.Arguments = []string{command}, arguments
	}
	return nil
}

// ParseEnvironment reads variables such as KEY=VALUE. The last of a name counts.
func ParseEnvironment(texts []string) ([]corev1.EnvVar, error) {
	var environment []corev1.EnvVar
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		if faults := validation.IsEnvVarName(name); !found || len(faults) > 0 {
			return nil, fmt.Errorf("--environment %q: want NAME=VALUE, with letters, digits and _ in the name", name)
		}
		environment = slices.DeleteFunc(environment, func(e corev1.EnvVar) bool { return e.Name == name })
		environment = append(environment, corev1.EnvVar{Name: name, Value: value})
	}
	return environment, nil
}

// Port is a port of the container, and the port of the Service in front of it.
type Port struct{ Service, Container int32 }

// ParsePorts reads ports such as 8888, or 80:8888 for port 80 of the Service.
func ParsePorts(texts []string) ([]Port, error) {
	var ports []Port
	for _, text := range texts {
		service, container, found := strings.Cut(text, ":")
		if !found {
			container = service
		}
		s, errS := strconv.ParseUint(service, 10, 16)
		c, errC := strconv.ParseUint(container, 10, 16)
		if errS != nil || errC != nil || s == 0 || c == 0 {
			return nil, fmt.Errorf("--port %q: want a port from 1 to 65535 such as 8888, or SERVICE:CONTAINER such as 80:8888", text)
		}
		port := Port{int32(s), int32(c)}
		if slices.ContainsFunc(ports, func(p Port) bool { return p.Service == port.Service }) {
			return nil, fmt.Errorf("--port %q: port %d is given twice", text, port.Service)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// notInName are what an image name has and a name of an object has not.
var notInName = regexp.MustCompile("[^a-z0-9-]+")

// NewName returns a name for a workload without one: that of its image with five random characters.
func NewName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndex(image, "/")+1:]
	image, _, _ = strings.Cut(strings.ToLower(image), ":")
	image = strings.Trim(notInName.ReplaceAllString(image, "-"), "-0123456789")
	if image == "" {
		image = "job"
	}
	var suffix [3]byte
	_, _ = rand.Read(suffix[:]) // it never fails
	return strings.TrimRight(image[:min(len(image), maxNameLength-6)], "-") + "-" + hex.EncodeToString(suffix[:])[:5]
}
