//! Functions of single numbers: a small program on registers, each of which holds a block of numbers.

use crate::Error;
use crate::amplitudes::Activation;
use crate::network::words::{Words, wrong};
use crate::numbers::Real;
use pulp::Simd;

/// What an operand of a map is.
#[derive(Debug)]
enum Operand<T> {
    /// Places one behind the other.
    Run(usize),
    /// Any places.
    Places(Vec<u32>),
    /// A parameter for each element.
    Table(Vec<T>),
    /// One for all.
    Number(T),
}

/// What a step computes.
#[derive(Debug, Clone, Copy)]
enum Instruction {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Or,
    Atan2,
    Neg,
    Abs,
    Sign,
    SignBit,
    Not,
    IsFinite,
    Square,
    Reciprocal,
    Sqrt,
    Rsqrt,
    Exp,
    ExpM1,
    Ln,
    Ln1p,
    Sin,
    Cos,
    Sinh,
    Cosh,
    Select,
    Function(Activation),
}

/// The instructions in the order of their numbers, as `python/ferroket/network/numbers.py` has them.
const INSTRUCTIONS: [Instruction; 41] = {
    use Instruction as I;
    [
        I::Add,
        I::Sub,
        I::Mul,
        I::Div,
        I::Max,
        I::Min,
        I::Less,
        I::LessEqual,
        I::Greater,
        I::GreaterEqual,
        I::Equal,
        I::NotEqual,
        I::And,
        I::Or,
        I::Atan2,
        I::Neg,
        I::Abs,
        I::Sign,
        I::SignBit,
        I::Not,
        I::IsFinite,
        I::Square,
        I::Reciprocal,
        I::Sqrt,
        I::Rsqrt,
        I::Exp,
        I::ExpM1,
        I::Ln,
        I::Ln1p,
        I::Function(Activation::Tanh),
        I::Function(Activation::Sigmoid),
        I::Function(Activation::Softplus),
        I::Sin,
        I::Cos,
        I::Sinh,
        I::Cosh,
        I::Function(Activation::Relu),
        I::Function(Activation::Gelu),
        I::Function(Activation::Silu),
        I::Function(Activation::LogCosh),
        I::Select,
    ]
};

#[derive(Debug)]
struct Step {
    instruction: Instruction,
    result: usize,
    args: [usize; 3],
}

/// Steps on registers, the first of which are operands, and which of them are kept where.
#[derive(Debug)]
pub(crate) struct Map<T> {
    elements: usize,
    registers: usize,
    operands: Vec<Operand<T>>,
    steps: Vec<Step>,
    results: Vec<(usize, usize)>,
}

impl<T: Real> Map<T> {
    /// How many numbers a register has.
    pub(crate) const BLOCK: usize = 4096 / size_of::<T>();

    pub(super) fn read(words: &mut Words, tables: &[T]) -> Result<Self, Error> {
        let (elements, n_operands, registers) = (words.number()?, words.number()?, words.number()?);
        let mut operands = Vec::new();
        for _ in 0..n_operands {
            operands.push(match words.number()? {
                0 => Operand::Run(words.run(elements)?),
                1 => Operand::Places(words.runs(elements, 1)?),
                2 => Operand::Table(tables[words.numbers(elements)?..][..elements].to_vec()),
                3 => Operand::Number(tables[words.numbers(1)?]),
                kind => return Err(wrong(&format!("there is no operand of kind {kind}"))),
            });
        }
        if n_operands > registers {
            return Err(wrong(&format!("{n_operands} operands are more than {registers} registers")));
        }
        let mut steps = Vec::new();
        for _ in 0..words.number()? {
            let instruction = INSTRUCTIONS[words.below(INSTRUCTIONS.len(), "an instruction")?];
            let result = words.below(registers, "a register")?;
            let mut args = [0; 3];
            for arg in &mut args {
                *arg = words.below(registers, "a register")?;
            }
            if result < n_operands || args.contains(&result) {
                return Err(wrong("a step writes what it reads"));
            }
            steps.push(Step { instruction, result, args });
        }
        let mut results = Vec::new();
        for _ in 0..words.number()? {
            results.push((words.below(registers, "a register")?, words.run(elements)?));
        }
        Ok(Self { elements, registers, operands, steps, results })
    }

    pub(super) fn registers(&self) -> usize {
        self.registers
    }

    pub(super) fn work(&self) -> usize {
        /// A step takes about as long as so many products: between arithmetic and a function.
        const STEP: usize = 8;
        self.elements * self.steps.len() * STEP
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, width: usize, places: &mut [T], registers: &mut [T]) {
        let at_once = Self::BLOCK / width;
        for (operand, register) in self.operands.iter().zip(registers.chunks_exact_mut(Self::BLOCK)) {
            if let Operand::Number(number) = operand {
                register.fill(*number);
            }
        }
        let mut first = 0;
        while first < self.elements {
            let count = at_once.min(self.elements - first);
            let len = count * width;
            for (operand, register) in self.operands.iter().zip(registers.chunks_exact_mut(Self::BLOCK)) {
                match operand {
                    Operand::Run(place) => {
                        register[..len].copy_from_slice(&places[(place + first) * width..][..len]);
                    }
                    Operand::Places(all) => {
                        let rows = register.chunks_exact_mut(width).zip(&all[first..first + count]);
                        for (numbers, &place) in rows {
                            numbers.copy_from_slice(&places[place as usize * width..][..width]);
                        }
                    }
                    Operand::Table(all) => {
                        for (numbers, &number) in register.chunks_exact_mut(width).zip(&all[first..first + count]) {
                            numbers.fill(number);
                        }
                    }
                    Operand::Number(_) => {}
                }
            }
            for step in &self.steps {
                step.run(simd, registers, Self::BLOCK, len);
            }
            for &(register, place) in &self.results {
                let numbers = &registers[register * Self::BLOCK..][..len];
                places[(place + first) * width..][..len].copy_from_slice(numbers);
            }
            first += count;
        }
    }
}

impl Step {
    /// Puts what it computes of the first `len` numbers of its arguments into its result.
    #[inline(always)]
    fn run<T: Real, S: Simd>(&self, simd: S, registers: &mut [T], block: usize, len: usize) {
        use Instruction as I;
        let is = |truth: bool| if truth { T::ONE } else { T::default() };
        let Self { instruction, result, args } = self;
        let zero = T::default();
        // The result's register, between those before and behind it.
        let (before, rest) = registers.split_at_mut(result * block);
        let (out, behind) = rest.split_at_mut(block);
        let out = &mut out[..len];
        let arg = |number: usize| {
            let register = args[number];
            if register < *result {
                &before[register * block..][..len]
            } else {
                &behind[(register - result - 1) * block..][..len]
            }
        };
        macro_rules! of_one {
            ($x:ident => $value:expr) => {
                for (out, &$x) in out.iter_mut().zip(arg(0)) {
                    *out = $value;
                }
            };
        }
        macro_rules! of_two {
            ($x:ident, $y:ident => $value:expr) => {
                for ((out, &$x), &$y) in out.iter_mut().zip(arg(0)).zip(arg(1)) {
                    *out = $value;
                }
            };
        }
        match *instruction {
            I::Add => of_two!(x, y => x + y),
            I::Sub => of_two!(x, y => x - y),
            I::Mul => of_two!(x, y => x * y),
            I::Div => of_two!(x, y => x / y),
            I::Max => of_two!(x, y => if x > y || T::is_nan(x) { x } else { y }),
            I::Min => of_two!(x, y => if x < y || T::is_nan(x) { x } else { y }),
            I::Less => of_two!(x, y => is(x < y)),
            I::LessEqual => of_two!(x, y => is(x <= y)),
            I::Greater => of_two!(x, y => is(x > y)),
            I::GreaterEqual => of_two!(x, y => is(x >= y)),
            I::Equal => of_two!(x, y => is(x == y)),
            I::NotEqual => of_two!(x, y => is(x != y)),
            I::And => of_two!(x, y => is(x != zero && y != zero)),
            I::Or => of_two!(x, y => is(x != zero || y != zero)),
            I::Atan2 => of_two!(y, x => T::atan2(y, x)),
            I::Neg => of_one!(x => -x),
            I::Abs => of_one!(x => T::abs(x)),
            I::Sign => of_one!(x => if x > zero { T::ONE } else if x < zero { -T::ONE } else { x }),
            I::SignBit => of_one!(x => is(T::is_negative(x))),
            I::Not => of_one!(x => is(x == zero)),
            I::IsFinite => of_one!(x => is(T::is_finite(x))),
            I::Square => of_one!(x => x * x),
            I::Reciprocal => of_one!(x => T::ONE / x),
            I::Sqrt => of_one!(x => T::sqrt(x)),
            I::Rsqrt => of_one!(x => T::ONE / T::sqrt(x)),
            I::Exp => of_one!(x => T::exp(x)),
            I::ExpM1 => of_one!(x => T::exp(x) - T::ONE),
            I::Ln => of_one!(x => T::ln(x)),
            I::Ln1p => of_one!(x => T::ln_1p(x)),
            I::Sin | I::Cos => {
                let is_sin = matches!(*instruction, I::Sin);
                let limit = T::nearest(*T::ANGLES.end());
                if arg(0).iter().all(|&x| T::abs(x) <= limit) {
                    if is_sin {
                        of_one!(x => T::sin_cos(x).0);
                    } else {
                        of_one!(x => T::sin_cos(x).1);
                    }
                } else {
                    for (out, &x) in out.iter_mut().zip(arg(0)) {
                        let (sin, cos) = T::sin_cos_of_any(x);
                        *out = if is_sin { sin } else { cos };
                    }
                }
            }
            I::Sinh => of_one!(x => T::cosh_sinh(x).1),
            I::Cosh => of_one!(x => T::cosh_sinh(x).0),
            I::Select => {
                for (((out, &which), &no), &yes) in out.iter_mut().zip(arg(0)).zip(arg(1)).zip(arg(2)) {
                    *out = if which == zero { no } else { yes };
                }
            }
            I::Function(function) => {
                out.copy_from_slice(arg(0));
                function.apply(simd, out);
            }
        }
    }
}
