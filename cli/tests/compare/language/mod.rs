//! The little language of the cases. A file holds stories, a story steps; every step is one line, and
//! goes on while a bracket is open or the next line is indented. `#` begins a comment.
//!
//! ```text
//! let NAME = VALUE                 a value for the steps below; worked out anew wherever it is used
//! story NAME [for V in LIST]       its own connections and names, told once for each V
//! LABEL: [@CONNECTION] API VERSIONS BODY [OPTIONS]
//!                                  one request and its answer, for each version: `4`, `0..13`, `0,4,7`, `v`
//! send LABEL: @CONNECTION API VERSION BODY     a request whose answer is taken later, by
//! receive LABEL @CONNECTION
//! keep NAME = PATH                 a part of the last answer; a text is shown as <NAME> from now on
//! pause MILLISECONDS
//! ```
//!
//! Values are JSON with bare keys, 'texts', names, `...spread`, `+`, `-` and the functions of
//! [`value`]. A body that is a text is sent as these bytes. In a body, `v` is the version of a step
//! that has several, and fields which that version lacks are left out.
//!
//! Options: `for X in LIST` repeats the step; `except NAME, NAME` leaves fields out of the
//! comparison; `hidden` leaves out the whole answer; `until PATH is VALUE` asks again until it is so; `silent`
//! expects that nothing is answered; `written as N` writes the body in version N whatever the header says.

pub mod parse;
pub mod token;
pub mod value;

use protocol::ApiKey;
use value::{Expression, Path};

/// Values defined before the first story, and the stories.
#[derive(Debug)]
pub struct Chapter {
    pub lets: Vec<(String, Expression)>,
    pub stories: Vec<Story>,
}

/// Steps that hang together.
#[derive(Debug)]
pub struct Story {
    pub name: String,
    /// Told once for each value of this list.
    pub repeat: Option<Loop>,
    pub steps: Vec<Step>,
}

/// A name that takes each value of a list.
#[derive(Clone, Debug)]
pub struct Loop {
    pub name: String,
    pub list: Expression,
}

/// One line of a story.
#[derive(Debug)]
pub enum Step {
    Let(String, Expression),
    Keep(String, Path),
    Pause(u64),
    Call(Call),
    Send(Call),
    Receive { label: String, connection: String },
}

/// A request, or one for each version and each value of its loops.
#[derive(Debug)]
pub struct Call {
    pub label: String,
    pub connection: String,
    pub api_key: ApiKey,
    /// A list of numbers.
    pub versions: Expression,
    pub body: Expression,
    pub options: Options,
}

/// What comes behind a body.
#[derive(Debug, Default)]
pub struct Options {
    pub loops: Vec<Loop>,
    pub except: Vec<String>,
    pub hidden: bool,
    pub silent: bool,
    pub until: Option<(Path, Expression)>,
    pub written_as: Option<i16>,
}
