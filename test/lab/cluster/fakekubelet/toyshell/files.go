// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"path"
	"slices"
	"strings"
)

// programFolders are the folders in which a shell finds programs.
var programFolders = []string{"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"}

// shells are the names of shells, all the same here.
var shells = []string{"ash", "bash", "dash", "sh", "zsh"}

const osRelease = `PRETTY_NAME="Sluice simulated container"
NAME="Sluice simulated container"
ID=sluice-simulated
`

const readMe = `This container is simulated: no image was pulled and no process runs.
"help" lists the commands of its shell.
`

// files has the contents of files by path, all in memory. Paths are absolute and clean; that of
// a folder ends with a slash.
type files map[string]string

// newFiles returns the files of every container, and those of this one.
func newFiles(c Container) files {
	f := files{"/README": readMe, "/etc/hostname": c.Hostname + "\n", "/etc/os-release": osRelease}
	folders := []string{"bin", "dev", "etc", "home", "mnt", "opt", "proc", "root", "sys", "tmp", "usr", "var", c.WorkingDir}
	for _, folder := range append(folders, c.Folders...) {
		f[strings.TrimSuffix(path.Clean("/"+folder), "/")+"/"] = ""
	}
	for _, name := range commandNames() {
		f["/usr/bin/"+name] = ""
	}
	for name, content := range c.Files {
		f[path.Clean("/"+name)] = content
	}
	return f
}

// list returns the names in a folder, sorted, folders with a slash.
func (f files) list(folder string) (names []string, isFolder bool) {
	folder = strings.TrimSuffix(folder, "/") + "/"
	for name := range f {
		if rest, inside := strings.CutPrefix(name, folder); inside {
			isFolder = true
			if end := strings.Index(rest, "/"); end >= 0 {
				rest = rest[:end+1]
			}
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" }), isFolder
}

// resolve returns the absolute path of an argument; .. never leaves the root.
func (s *session) resolve(name string) string {
	if !path.IsAbs(name) {
		name = s.dir + "/" + name
	}
	return path.Clean("/" + name)
}
