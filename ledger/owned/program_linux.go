package owned

import "os"

// firstExtra is the number that the first file of exec.Cmd.ExtraFiles has in a
// program.
const firstExtra = "3"

// descriptors is the directory in which a process finds what it has open.
const descriptors = "/proc/self/fd/"

// executable is what is run for the program, and what must be open in it. The file
// stays open in the program: the interpreter of a script opens it by this path.
func (p *Program) executable() (string, []*os.File) {
	return descriptors + firstExtra, []*os.File{p.f}
}

func hasDescriptors() bool {
	_, err := os.Stat(descriptors)
	return err == nil
}
