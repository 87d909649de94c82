//! The functions of an opened library, and the translation of our ABI's numbers into its own.

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix as dl;

use crate::abi::{self, Handle, Pointer, Status, datatype as dt};

/// `MPI_User_function`.
pub type Reduction = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut c_void);

macro_rules! functions {
    ($($field:ident = $symbol:ident($($argument:ty),*);)+) => {
        /// The functions of MPI that are ever called, for handles of type `H`.
        #[derive(Debug)]
        #[allow(missing_docs)] // each is the function of the MPI standard by that name
        pub struct Functions<H> {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> c_int,)+
        }

        impl<H: Copy> Functions<H> {
            /// Looks all of them up.
            ///
            /// # Safety
            /// `H` has to be the type of the library's handles.
            unsafe fn load(library: &dl::Library) -> Result<Self, libloading::Error> {
                Ok(Self { $(
                    // SAFETY: the MPI standard gives the type; the caller answers for the handles.
                    $field: unsafe { symbol(library, concat!(stringify!($symbol), "\0")) }?,
                )+ })
            }
        }
    };
}

functions! {
    init_thread = MPI_Init_thread(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    initialized = MPI_Initialized(*mut c_int);
    finalize = MPI_Finalize();
    finalized = MPI_Finalized(*mut c_int);
    query_thread = MPI_Query_thread(*mut c_int);
    abort = MPI_Abort(H, c_int);
    get_version = MPI_Get_version(*mut c_int, *mut c_int);
    get_library_version = MPI_Get_library_version(*mut c_char, *mut c_int);
    error_string = MPI_Error_string(c_int, *mut c_char, *mut c_int);
    comm_rank = MPI_Comm_rank(H, *mut c_int);
    comm_size = MPI_Comm_size(H, *mut c_int);
    comm_dup = MPI_Comm_dup(H, *mut H);
    comm_split = MPI_Comm_split(H, c_int, c_int, *mut H);
    comm_free = MPI_Comm_free(*mut H);
    comm_group = MPI_Comm_group(H, *mut H);
    comm_create_group = MPI_Comm_create_group(H, H, c_int, *mut H);
    group_incl = MPI_Group_incl(H, c_int, *const c_int, *mut H);
    group_free = MPI_Group_free(*mut H);
    comm_set_errhandler = MPI_Comm_set_errhandler(H, H);
    allreduce = MPI_Allreduce(*const c_void, *mut c_void, c_int, H, H, H);
    allgather = MPI_Allgather(*const c_void, c_int, H, *mut c_void, c_int, H, H);
    reduce_local = MPI_Reduce_local(*const c_void, *mut c_void, c_int, H, H);
    type_contiguous = MPI_Type_contiguous(c_int, H, *mut H);
    type_commit = MPI_Type_commit(*mut H);
    type_free = MPI_Type_free(*mut H);
    op_create = MPI_Op_create(Reduction, c_int, *mut H);
    op_free = MPI_Op_free(*mut H);
    reduce_scatter = MPI_Reduce_scatter(*const c_void, *mut c_void, *const c_int, H, H, H);
    sendrecv = MPI_Sendrecv(*const c_void, c_int, H, c_int, c_int, *mut c_void, c_int, H, c_int, c_int, H, *mut c_void);
    send = MPI_Send(*const c_void, c_int, H, c_int, c_int, H);
    isend = MPI_Isend(*const c_void, c_int, H, c_int, c_int, H, *mut H);
    irecv = MPI_Irecv(*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    wait = MPI_Wait(*mut H, *mut c_void);
    test = MPI_Test(*mut H, *mut c_int, *mut c_void);
    ibarrier = MPI_Ibarrier(H, *mut H);
    iallreduce = MPI_Iallreduce(*const c_void, *mut c_void, c_int, H, H, H, *mut H);
    iallgather = MPI_Iallgather(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
    ireduce_scatter = MPI_Ireduce_scatter(*const c_void, *mut c_void, *const c_int, H, H, H, *mut H);
}

/// Looks up one symbol; an error names the one that is missing.
///
/// # Safety
/// `T` has to be the symbol's type.
unsafe fn symbol<T: Copy>(library: &dl::Library, name: &str) -> Result<T, libloading::Error> {
    // SAFETY: the caller answers for the type. The library is never closed, so a copy stays valid.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol)
}

/// Room for the `MPI_Status` of any library: 20, 24 or 32 bytes, of which Open MPI's holds a `size_t`.
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct RealStatus([c_int; 8]);

/// The numbers of a library that ours have to be translated into.
#[derive(Debug)]
struct Numbers<H> {
    comm_null: H,
    comm_world: H,
    comm_self: H,
    request_null: H,
    errors_return: H,
    /// By our number less `FIRST_DATATYPE`.
    datatypes: [Option<H>; DATATYPES],
    /// By our number less `FIRST_OPERATION`.
    operations: [Option<H>; OPERATIONS],
    in_place: Pointer,
    status_ignore: Pointer,
    any_source: c_int,
    any_tag: c_int,
    proc_null: c_int,
    thread_multiple: c_int,
    /// Where `MPI_Status` keeps source, tag and error, as indices of its `int`s.
    status: [usize; 3],
}

const FIRST_DATATYPE: Handle = 0x200;
const DATATYPES: usize = 0x60;
const FIRST_OPERATION: Handle = 0x20;
const OPERATIONS: usize = 0x10;

fn table<H: Copy, const N: usize>(first: Handle, entries: &[(Handle, H)]) -> [Option<H>; N] {
    let mut table = [None; N];
    for &(ours, theirs) in entries {
        table[ours - first] = Some(theirs);
    }
    table
}

/// A number of ours that has no translation: XLA started to use something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// What it is a number of.
    pub what: &'static str,
    /// The number.
    pub number: Handle,
}

/// A type of handle: how a library's own handles, which it made at run time, pass through our 64-bit ones.
pub trait RealHandle: Copy + PartialEq {
    /// Our handle for a library's.
    fn widen(self) -> Handle;
    /// The library's handle for ours.
    fn narrow(handle: Handle) -> Self;
}

impl RealHandle for c_int {
    fn widen(self) -> Handle {
        self.cast_unsigned() as Handle
    }
    fn narrow(handle: Handle) -> Self {
        handle as Self
    }
}

impl RealHandle for usize {
    fn widen(self) -> Handle {
        self
    }
    fn narrow(handle: Handle) -> Self {
        handle
    }
}

/// The functions and numbers of a library with handles of type `H`.
#[derive(Debug)]
pub struct Api<H> {
    /// Its functions.
    pub functions: Functions<H>,
    numbers: Numbers<H>,
}

// Handles that a library made itself pass through unchanged. They can't be mistaken for one of our predefined
// numbers, all below 0x1000: MPICH's have their kind in the upper bits, the others' are addresses.
impl<H: RealHandle> Api<H> {
    /// A communicator, by the library's number.
    pub fn comm(&self, ours: Handle) -> H {
        match ours {
            abi::COMM_NULL => self.numbers.comm_null,
            abi::COMM_WORLD => self.numbers.comm_world,
            abi::COMM_SELF => self.numbers.comm_self,
            made => H::narrow(made),
        }
    }

    /// A communicator, by our number.
    pub fn comm_back(&self, theirs: H) -> Handle {
        if theirs == self.numbers.comm_null { abi::COMM_NULL } else { theirs.widen() }
    }

    /// Room for a handle of a group, which the library fills.
    pub fn no_group(&self) -> H {
        self.numbers.comm_null
    }

    /// A request, by the library's number.
    pub fn request(&self, ours: Handle) -> H {
        if ours == abi::REQUEST_NULL { self.numbers.request_null } else { H::narrow(ours) }
    }

    /// A request, by our number.
    pub fn request_back(&self, theirs: H) -> Handle {
        if theirs == self.numbers.request_null { abi::REQUEST_NULL } else { theirs.widen() }
    }

    /// A datatype, by the library's number.
    pub fn datatype(&self, ours: Handle) -> Result<H, Unknown> {
        let index = ours.wrapping_sub(FIRST_DATATYPE);
        let entry = self.numbers.datatypes.get(index).copied().flatten();
        entry.ok_or(Unknown { what: "datatype", number: ours })
    }

    /// An operation, by the library's number.
    pub fn operation(&self, ours: Handle) -> Result<H, Unknown> {
        let index = ours.wrapping_sub(FIRST_OPERATION);
        let entry = self.numbers.operations.get(index).copied().flatten();
        entry.ok_or(Unknown { what: "operation", number: ours })
    }

    /// A send buffer, by the library's `MPI_IN_PLACE` where it is ours.
    pub fn buffer(&self, ours: *const c_void) -> *const c_void {
        if ours.addr() == abi::IN_PLACE { std::ptr::without_provenance(self.numbers.in_place) } else { ours }
    }

    /// The rank of a peer, or what stands for one.
    pub fn peer(&self, ours: c_int) -> c_int {
        match ours {
            abi::ANY_SOURCE => self.numbers.any_source,
            abi::PROC_NULL => self.numbers.proc_null,
            rank => rank,
        }
    }

    /// The tag of a message, or what stands for any.
    pub fn tag(&self, ours: c_int) -> c_int {
        if ours == abi::ANY_TAG { self.numbers.any_tag } else { ours }
    }

    /// The handle of `MPI_ERRORS_RETURN`.
    pub fn errors_return(&self) -> H {
        self.numbers.errors_return
    }

    /// The number of `MPI_THREAD_MULTIPLE`.
    pub fn thread_multiple(&self) -> c_int {
        self.numbers.thread_multiple
    }

    /// Where the library should write a status: to `real`, or nowhere if the caller ignores it.
    pub fn status(&self, ours: *mut Status, real: &mut RealStatus) -> *mut c_void {
        if ours.is_null() { self.no_status() } else { std::ptr::from_mut(real).cast() }
    }

    /// What says that nobody wants the status.
    pub fn no_status(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.numbers.status_ignore)
    }

    /// The public fields of the status that the library wrote.
    pub fn status_back(&self, real: &RealStatus) -> Status {
        let [source, tag, error] = self.numbers.status.map(|index| real.0[index]);
        Status::new(source, tag, error)
    }
}

impl Api<c_int> {
    /// MPICH and its relatives: the numbers are fixed by the MPICH ABI initiative.
    ///
    /// # Safety
    /// The library has to be of that family.
    pub(super) unsafe fn mpich(library: &dl::Library) -> Result<Self, libloading::Error> {
        let datatypes = [
            (dt::BYTE, 0x4c00_010d),
            (dt::INT8, 0x4c00_0137),
            (dt::INT16, 0x4c00_0238),
            (dt::INT32, 0x4c00_0439),
            (dt::INT64, 0x4c00_083a),
            (dt::UINT8, 0x4c00_013b),
            (dt::UINT16, 0x4c00_023c),
            (dt::UINT32, 0x4c00_043d),
            (dt::UINT64, 0x4c00_083e),
            (dt::FLOAT, 0x4c00_040a),
            (dt::DOUBLE, 0x4c00_080b),
            (dt::C_COMPLEX, 0x4c00_0840),
            (dt::C_DOUBLE_COMPLEX, 0x4c00_1041),
        ];
        let operations =
            [(abi::MAX, 0x5800_0001), (abi::MIN, 0x5800_0002), (abi::SUM, 0x5800_0003), (abi::PROD, 0x5800_0004)];
        Ok(Self {
            // SAFETY: the caller answers for the family, whose handles are `int`.
            functions: unsafe { Functions::load(library) }?,
            numbers: Numbers {
                comm_null: 0x0400_0000,
                comm_world: 0x4400_0000,
                comm_self: 0x4400_0001,
                request_null: 0x2c00_0000,
                errors_return: 0x5400_0001,
                datatypes: table(FIRST_DATATYPE, &datatypes),
                operations: table(FIRST_OPERATION, &operations),
                in_place: usize::MAX, // (void *) -1
                status_ignore: 1,
                any_source: -2,
                any_tag: -1,
                proc_null: -1,
                thread_multiple: 3,
                status: [2, 3, 4], // after count_lo and count_hi_and_cancelled
            },
        })
    }
}

impl Api<usize> {
    /// Open MPI: a handle is the address of an object that the library exports.
    ///
    /// # Safety
    /// The library has to be Open MPI.
    pub(super) unsafe fn open_mpi(library: &dl::Library) -> Result<Self, libloading::Error> {
        let object = |name: &str| -> Result<usize, libloading::Error> {
            // SAFETY: only the address is taken; the symbol is some object of the library's.
            let address = unsafe { library.get::<*const ()>(name.as_bytes()) };
            address.map(|symbol| symbol.as_raw_ptr().addr())
        };
        let datatypes = [
            (dt::BYTE, object("ompi_mpi_byte\0")?),
            (dt::INT8, object("ompi_mpi_int8_t\0")?),
            (dt::INT16, object("ompi_mpi_int16_t\0")?),
            (dt::INT32, object("ompi_mpi_int32_t\0")?),
            (dt::INT64, object("ompi_mpi_int64_t\0")?),
            (dt::UINT8, object("ompi_mpi_uint8_t\0")?),
            (dt::UINT16, object("ompi_mpi_uint16_t\0")?),
            (dt::UINT32, object("ompi_mpi_uint32_t\0")?),
            (dt::UINT64, object("ompi_mpi_uint64_t\0")?),
            (dt::FLOAT, object("ompi_mpi_float\0")?),
            (dt::DOUBLE, object("ompi_mpi_double\0")?),
            (dt::C_COMPLEX, object("ompi_mpi_c_float_complex\0")?),
            (dt::C_DOUBLE_COMPLEX, object("ompi_mpi_c_double_complex\0")?),
        ];
        let operations = [
            (abi::MAX, object("ompi_mpi_op_max\0")?),
            (abi::MIN, object("ompi_mpi_op_min\0")?),
            (abi::SUM, object("ompi_mpi_op_sum\0")?),
            (abi::PROD, object("ompi_mpi_op_prod\0")?),
        ];
        Ok(Self {
            // SAFETY: the caller answers for the family, whose handles are pointers.
            functions: unsafe { Functions::load(library) }?,
            numbers: Numbers {
                comm_null: object("ompi_mpi_comm_null\0")?,
                comm_world: object("ompi_mpi_comm_world\0")?,
                comm_self: object("ompi_mpi_comm_self\0")?,
                request_null: object("ompi_request_null\0")?,
                errors_return: object("ompi_mpi_errors_return\0")?,
                datatypes: table(FIRST_DATATYPE, &datatypes),
                operations: table(FIRST_OPERATION, &operations),
                in_place: 1,
                status_ignore: 0,
                any_source: -1,
                any_tag: -1,
                proc_null: -2,
                thread_multiple: 3,
                status: [0, 1, 2],
            },
        })
    }

    /// The MPI-5 standard ABI: its numbers are ours.
    ///
    /// # Safety
    /// The library has to speak that ABI.
    pub(super) unsafe fn standard(library: &dl::Library) -> Result<Self, libloading::Error> {
        Ok(Self {
            // SAFETY: the caller answers for the ABI, whose handles are pointers.
            functions: unsafe { Functions::load(library) }?,
            numbers: Numbers {
                comm_null: abi::COMM_NULL,
                comm_world: abi::COMM_WORLD,
                comm_self: abi::COMM_SELF,
                request_null: abi::REQUEST_NULL,
                errors_return: 0x143,
                datatypes: std::array::from_fn(|index| Some(FIRST_DATATYPE + index)),
                operations: std::array::from_fn(|index| Some(FIRST_OPERATION + index)),
                in_place: abi::IN_PLACE,
                status_ignore: 0,
                any_source: abi::ANY_SOURCE,
                any_tag: abi::ANY_TAG,
                proc_null: abi::PROC_NULL,
                thread_multiple: abi::ThreadLevel::Multiple as c_int,
                status: [0, 1, 2],
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Open MPI's own fields: source, tag, error, whether it was cancelled, and the number of bytes.
    #[repr(C)]
    struct OpenMpiStatus([c_int; 4], usize);

    #[test]
    fn a_status_of_any_library_has_room() {
        assert!(size_of::<RealStatus>() >= 32);
        assert!(size_of::<RealStatus>() >= size_of::<OpenMpiStatus>());
        assert!(align_of::<RealStatus>() >= align_of::<OpenMpiStatus>());
    }

    #[test]
    fn narrow_handles_survive_the_way_through_wide_ones() {
        for handle in [0x4400_0000, -0x7c00_0000 + 3, 0x2c00_0000, -1] {
            assert_eq!(c_int::narrow(handle.widen()), handle);
            assert!(handle.widen() >= 0x1000 && u32::try_from(handle.widen()).is_ok());
        }
    }

    #[test]
    fn tables_hold_what_was_given_and_nothing_else() {
        let operations: [Option<c_int>; OPERATIONS] = table(FIRST_OPERATION, &[(abi::SUM, 7)]);
        assert_eq!(operations[1], Some(7));
        assert_eq!(operations.iter().flatten().count(), 1);
    }
}
